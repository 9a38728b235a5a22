//! One stream besides control: its request, its work, its last frame.

use std::sync::Arc;

use vk_guest_proto::{
    Assembly, Failure, FailureCode, Purpose, Request, StreamToAgent, StreamToHost,
};

use crate::agent::{Admitted, Agent};
use crate::conn::{Conn, Incoming, Outgoing};
use crate::context::{OrFail, fail};
use crate::{archive, exec, files};

/// Dials a stream and serves it on a thread of its own.
pub(crate) fn open(agent: &Arc<Agent>, purpose: Purpose, stream: u32) -> Result<(), Failure> {
    if purpose == Purpose::Control || stream == vk_guest_proto::CONTROL_STREAM {
        return fail(FailureCode::Invalid, "a second control stream");
    }
    let admitted = agent.admit()?;
    let conn = agent.dial(purpose, stream)?;
    std::thread::Builder::new()
        .name(format!("stream-{stream}"))
        .spawn(move || serve(&admitted, purpose, stream, &conn))
        .or_fail(|| format!("start stream {stream}"))?;
    Ok(())
}

fn serve(admitted: &Admitted, purpose: Purpose, stream: u32, conn: &Conn) {
    let mut incoming = Incoming::new(conn.clone());
    let mut out = Outgoing::new(conn.clone());
    let last = match request(&mut incoming, purpose) {
        Ok(request) => run(&admitted.0, stream, conn, incoming, &mut out, &request),
        Err(failure) => Err(failure),
    };
    let last = last.unwrap_or_else(|failure| StreamToHost::Failed { failure });
    // A host that is gone needs no last frame; else it closes when it has it.
    if out.send(&last).is_ok() {
        conn.linger();
    }
}

fn request(incoming: &mut Incoming<StreamToAgent>, purpose: Purpose) -> Result<Request, Failure> {
    let protocol = |why: String| Failure::new(FailureCode::Protocol, why);
    let mut assembly = Assembly::new();
    loop {
        let StreamToAgent::Request { last, part } =
            incoming.next().map_err(|gone| protocol(gone.to_string()))?
        else {
            return fail(FailureCode::Protocol, "data before the end of the request");
        };
        let whole = assembly.push(last, &part);
        match whole.map_err(|error| protocol(format!("an unreadable request: {error}")))? {
            Some(request) if request.purpose() == purpose => return Ok(request),
            Some(_) => {
                return fail(
                    FailureCode::Protocol,
                    "a request for another kind of stream",
                );
            }
            None => {}
        }
    }
}

fn run(
    agent: &Agent,
    stream: u32,
    conn: &Conn,
    mut incoming: Incoming<StreamToAgent>,
    out: &mut Outgoing,
    request: &Request,
) -> Result<StreamToHost, Failure> {
    let end = match request {
        Request::Exec { exec } => {
            return exec::serve(agent, stream, conn, incoming, out, exec);
        }
        Request::TarIn { tar } => archive::serve_in(agent, &mut incoming, out, tar)?,
        Request::TarOut { tar } => archive::serve_out(agent, out, tar)?,
        Request::FileIn { file } => files::write(agent, &mut incoming, file)?,
        Request::FileOut { file } => files::read(agent, out, file)?,
    };
    Ok(StreamToHost::Done { end })
}
