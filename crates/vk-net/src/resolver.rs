//! Answers the guest's DNS questions with the host's resolvers' answers, unread: a question comes in
//! through a socket of the job's namespace and goes on through one of the host's.
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
/// A question is rarely longer than a few hundred bytes.
const QUESTION_MAX: usize = 4096;
/// No message is longer.
const MESSAGE_MAX: usize = 65_535;
/// A message's header.
const HEADER: usize = 12;
/// The bit of the third byte that says that it is an answer.
const IS_ANSWER: u8 = 0x80;
/// The operation, in the third byte; 0 is a question.
const OPERATION: u8 = 0x78;
/// "The server failed", in the fourth byte.
const SERVER_FAILED: u8 = 2;

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
        if !is_question(question) || length > QUESTION_MAX {
            continue;
        }
        let (question, socket) = (question.to_vec(), Arc::clone(&socket));
        tokio::spawn(async move {
            let answer = ask(&question).await;
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
        if !is_question(&question) {
            return Ok(());
        }
        let mut answer = failed(&question);
        for server in servers() {
            let asked = timeout(ANSWER, ask_by_tcp(server, &question)).await;
            if let Ok(Ok(found)) = asked {
                answer = found;
                break;
            }
        }
        timeout(IDLE, send(&mut guest, &answer))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    }
    Ok(())
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

fn is_question(message: &[u8]) -> bool {
    message.len() >= HEADER
        && message
            .get(2)
            .is_some_and(|flags| flags & (IS_ANSWER | OPERATION) == 0)
}

/// Whether it is an answer to this question: the same number at least.
fn answers(question: &[u8], answer: &[u8]) -> bool {
    answer.len() >= HEADER
        && answer.get(..2) == question.get(..2)
        && answer.get(2).is_some_and(|flags| flags & IS_ANSWER != 0)
}

/// The question as an answer that says that the server failed.
fn failed(question: &[u8]) -> Vec<u8> {
    let mut answer = question.to_vec();
    if let Some(flags) = answer.get_mut(2) {
        *flags |= IS_ANSWER;
    }
    if let Some(code) = answer.get_mut(3) {
        *code = *code & 0xf0 | SERVER_FAILED;
    }
    answer
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_questions_go_on_and_only_their_answers_come_back() {
        let question = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        assert!(is_question(&question));
        let answer = failed(&question);
        assert!(!is_question(&answer) && !is_question(&question[..11]));
        assert!(answers(&question, &answer));
        assert_eq!(answer[3] & 0xf, SERVER_FAILED);
        let mut update = question;
        update[2] = 0x28;
        assert!(!is_question(&update));
        let mut other = answer.clone();
        other[0] ^= 1;
        assert!(!answers(&question, &other) && !answers(&question, &question));
    }
}
