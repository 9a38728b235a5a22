//! Answers the guest's DNS questions with the host's resolvers' answers, unread: a question comes in
//! through a socket of the job's namespace, is judged, and goes on through one of the host's.
//!
//! The questions in hand, their sizes and their time are bounded; what is beyond is not answered,
//! and the guest asks again.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::question::{QUESTION_MAX, Verdict, answers, failed, judge, refused};
use crate::upstream::servers;

/// Questions by UDP in hand.
const QUESTIONS: usize = 64;
/// Connections of the guest.
const CONNECTIONS: usize = 16;
/// Questions on one connection.
const ON_ONE: usize = 256;
/// How long one server may take; the next is asked then.
const ANSWER: Duration = Duration::from_secs(3);
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(10);
/// No message is longer.
const MESSAGE_MAX: usize = 65_535;
/// The two sockets that the guest asks, made in the job's namespace.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) udp: UdpSocket,
    pub(crate) tcp: TcpListener,
}

/// Serves until one of the sockets fails; runs in a thread that is in the host's namespace.
pub(crate) fn serve(listening: Listening) -> io::Error {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => match runtime.block_on(run(listening)) {
            Err(error) => error,
            Ok(never) => match never {},
        },
        Err(error) => error,
    }
}

enum Never {}

async fn run(listening: Listening) -> io::Result<Never> {
    let Listening { udp, tcp } = listening;
    udp.set_nonblocking(true)?;
    tcp.set_nonblocking(true)?;
    let udp = Arc::new(tokio::net::UdpSocket::from_std(udp)?);
    let tcp = tokio::net::TcpListener::from_std(tcp)?;
    tokio::select! {
        ended = by_udp(udp) => ended,
        ended = by_tcp(tcp) => ended,
    }
}

async fn by_udp(socket: Arc<tokio::net::UdpSocket>) -> io::Result<Never> {
    let seats = Arc::new(Semaphore::new(QUESTIONS));
    let mut packet = vec![0; QUESTION_MAX + 1];
    loop {
        let (length, from) = match socket.recv_from(&mut packet).await {
            Ok(received) => received,
            // What an earlier answer met on its way.
            Err(error) if passing(&error) => continue,
            Err(error) => return Err(error),
        };
        let question = packet.get(..length).unwrap_or_default();
        let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else {
            continue;
        };
        let verdict = judge(question);
        if verdict == Verdict::Ignore {
            continue;
        }
        let (question, socket) = (question.to_vec(), Arc::clone(&socket));
        tokio::spawn(async move {
            let answer = match verdict {
                Verdict::Ask => ask(&question).await,
                _ => refused(&question),
            };
            // The guest may be gone, or ask no more.
            let _ = socket.send_to(&answer, from).await;
            drop(seat);
        });
    }
}

/// The first server's answer, or one that says that none answers.
async fn ask(question: &[u8]) -> Vec<u8> {
    for server in servers() {
        if let Ok(Ok(answer)) = timeout(ANSWER, ask_one(server, question)).await {
            return answer;
        }
    }
    failed(question)
}

/// A socket a question: its port is drawn anew, and only the server's answers reach it.
async fn ask_one(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = tokio::net::UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; MESSAGE_MAX];
    loop {
        let length = socket.recv(&mut answer).await?;
        if answers(question, answer.get(..length).unwrap_or_default()) {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

async fn by_tcp(listener: tokio::net::TcpListener) -> io::Result<Never> {
    let seats = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            return Err(io::Error::other("the seats are gone"));
        };
        match listener.accept().await {
            Ok((connection, _)) => {
                tokio::spawn(async move {
                    // What a connection ends with is the guest's matter.
                    let _ = converse(connection).await;
                    drop(seat);
                });
            }
            Err(error) if passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

async fn converse(mut guest: TcpStream) -> io::Result<()> {
    for _ in 0..ON_ONE {
        let Ok(question) = timeout(IDLE, receive(&mut guest, QUESTION_MAX)).await else {
            return Ok(());
        };
        let question = question?;
        let answer = match judge(&question) {
            Verdict::Ignore => return Ok(()),
            Verdict::Refuse => refused(&question),
            Verdict::Ask => ask_all_by_tcp(&question).await,
        };
        timeout(IDLE, send(&mut guest, &answer))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    }
    Ok(())
}

/// As [`ask`].
async fn ask_all_by_tcp(question: &[u8]) -> Vec<u8> {
    for server in servers() {
        if let Ok(Ok(answer)) = timeout(ANSWER, ask_by_tcp(server, question)).await {
            return answer;
        }
    }
    failed(question)
}

async fn ask_by_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    send(&mut stream, question).await?;
    let answer = receive(&mut stream, MESSAGE_MAX).await?;
    if answers(question, &answer) {
        Ok(answer)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

async fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut packet = length.to_be_bytes().to_vec();
    packet.extend_from_slice(message);
    stream.write_all(&packet).await
}

async fn receive(stream: &mut TcpStream, max: usize) -> io::Result<Vec<u8>> {
    let length = usize::from(stream.read_u16().await?);
    if length > max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// Errors that are of one packet or connection, not of the socket.
fn passing(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::Interrupted
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
    )
}
