//! Archives on a stream to the host, or on a program's own input and output.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use rustix::fs::{Mode, OFlags, open};
use vk_guest_proto::limits::MAX_CHUNK;
use vk_guest_proto::{
    Channel, Failure, FailureCode, Note, Opaque, StreamToAgent, StreamToHost, TarIn, TarOut,
    TransferEnd,
};

use super::extract::{Extraction, Ownership};
use super::notes::{Notes, Sink};
use super::select::select;
use super::write::TarWriter;
use crate::agent::Agent;
use crate::beneath::Beneath;
use crate::conn::{Incoming, Outgoing};
use crate::context::{OrFail, fail, shown};
use crate::exec::identity;
use crate::glob::relative;

/// Sends what a request selects.
pub(crate) fn serve_out(
    agent: &Agent,
    out: &mut Outgoing,
    tar: &TarOut,
) -> Result<TransferEnd, Failure> {
    let dir = agent.root()?.open_dir(&tar.root);
    let root = Beneath::new(dir.or_fail(|| format!("open {}", shown(&tar.root)))?);
    // Notes and content share the stream, each whole.
    let out = RefCell::new(out);
    let mut sink = |note: Note| send(&mut out.borrow_mut(), &StreamToHost::Note { note });
    let content = Chunks {
        out: &out,
        buf: Vec::with_capacity(MAX_CHUNK),
    };
    archive(&root, tar, &mut sink, content)
}

fn send(out: &mut Outgoing, frame: &StreamToHost) -> Result<(), Failure> {
    out.send(frame).or_fail(|| "send to the host".into())
}

fn archive(
    root: &Beneath,
    tar: &TarOut,
    sink: &mut Sink<'_>,
    out: impl Write,
) -> Result<TransferEnd, Failure> {
    let mut notes = Notes::new(sink);
    let selection = select(root, tar, &mut notes)?;
    let writer = TarWriter {
        root,
        out,
        notes: &mut notes,
        list_only: tar.list_only,
    };
    let (end, _) = writer.write(&selection)?;
    notes.close()?;
    Ok(end)
}

/// Cuts bytes into data frames.
struct Chunks<'a, 'b> {
    out: &'a RefCell<&'b mut Outgoing>,
    buf: Vec<u8>,
}

impl Write for Chunks<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buf.len() >= MAX_CHUNK {
            self.flush()?;
        }
        let fits = bytes.get(..MAX_CHUNK - self.buf.len()).unwrap_or(bytes);
        self.buf.extend_from_slice(fits);
        Ok(fits.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buf.is_empty() {
            return Ok(());
        }
        let bytes = Opaque::from(std::mem::take(&mut self.buf));
        let frame = StreamToHost::Data {
            channel: Channel::Content,
            bytes,
        };
        let result = self.out.borrow_mut().send(&frame);
        if let StreamToHost::Data { bytes, .. } = frame {
            self.buf = bytes.into_inner();
            self.buf.clear();
        }
        result
    }
}

/// Extracts what the host sends.
pub(crate) fn serve_in(
    agent: &Agent,
    incoming: &mut Incoming<StreamToAgent>,
    out: &mut Outgoing,
    tar: &TarIn,
) -> Result<TransferEnd, Failure> {
    let job = agent.root()?;
    let owner = agent.owner(&identity(&job, &tar.owner)?);
    let ownership = match owner {
        _ if tar.owner.is_empty() && rustix::process::geteuid().is_root() => Ownership::AsArchived,
        Some((uid, gid)) if !tar.owner.is_empty() => Ownership::Of(uid, gid),
        _ => Ownership::Mine,
    };
    let made = if tar.owner.is_empty() { None } else { owner };
    let root = Beneath::new(job.make_dirs(&tar.root, 0o755, made)?);
    let mut sink = |note: Note| send(out, &StreamToHost::Note { note });
    let mut from = Content {
        incoming,
        chunk: Opaque::default(),
        at: 0,
        ended: false,
    };
    let mut notes = Notes::new(&mut sink);
    let (max_entries, max_bytes) = (tar.max_entries, tar.max_bytes);
    let extraction = Extraction {
        root: &root,
        ownership,
        max_entries,
        max_bytes,
        notes: &mut notes,
    };
    let end = extraction.run(&mut from)?;
    notes.close()?;
    Ok(end)
}

/// The bytes of data frames up to the one that ends them.
struct Content<'a> {
    incoming: &'a mut Incoming<StreamToAgent>,
    chunk: Opaque,
    at: usize,
    ended: bool,
}

impl Read for Content<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut rest = self.chunk.get(self.at..).unwrap_or_default();
            if !rest.is_empty() || self.ended || buf.is_empty() {
                let n = rest.read(buf)?;
                self.at += n;
                return Ok(n);
            }
            match self.incoming.next() {
                Ok(StreamToAgent::Data { bytes }) => (self.chunk, self.at) = (bytes, 0),
                Ok(StreamToAgent::End) => self.ended = true,
                Ok(StreamToAgent::Request { .. }) => {
                    return Err(io::Error::other("a second request"));
                }
                Err(gone) => return Err(io::Error::other(gone.to_string())),
            }
        }
    }
}

/// `vk-agent archive`: what a request selects, below a directory of this program's own.
///
/// # Errors
/// The directory cannot be opened, or the output cannot be written.
pub(crate) fn archive_to(
    tar: &TarOut,
    out: impl Write,
    note: &mut dyn FnMut(Note),
) -> Result<TransferEnd, Failure> {
    let mut sink = |one: Note| {
        note(one);
        Ok(())
    };
    archive(&own_dir(&tar.root)?, tar, &mut sink, out)
}

/// `vk-agent extract`: a tar into a directory of this program's own.
///
/// # Errors
/// An archive that cannot be read or leads out of the directory; a file that cannot be written.
pub(crate) fn extract_from(
    tar: &TarIn,
    from: impl Read,
    note: &mut dyn FnMut(Note),
) -> Result<TransferEnd, Failure> {
    let mut sink = |one: Note| {
        note(one);
        Ok(())
    };
    let mut notes = Notes::new(&mut sink);
    let root = own_dir(&tar.root)?;
    let as_root = rustix::process::geteuid().is_root();
    let ownership = if as_root {
        Ownership::AsArchived
    } else {
        Ownership::Mine
    };
    let (max_entries, max_bytes) = (tar.max_entries, tar.max_bytes);
    let extraction = Extraction {
        root: &root,
        ownership,
        max_entries,
        max_bytes,
        notes: &mut notes,
    };
    let end = extraction.run(from)?;
    notes.close()?;
    Ok(end)
}

fn own_dir(path: &[u8]) -> Result<Beneath, Failure> {
    if relative(b"/", path).is_none() || path.first() != Some(&b'/') {
        return fail(
            FailureCode::Invalid,
            format!("{} is not absolute", shown(path)),
        );
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(path, flags, Mode::empty()).or_fail(|| format!("open {}", shown(path)))?;
    Ok(Beneath::new(dir))
}
