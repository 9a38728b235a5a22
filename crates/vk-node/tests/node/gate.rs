//! A place where a scripted job stops until the test lets it go on.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The test's side.
pub struct Gate {
    path: PathBuf,
    listener: UnixListener,
}

/// A job that stands at a gate.
pub struct Waiting(UnixStream);

impl Gate {
    pub fn new(dir: &Path, name: &str) -> Gate {
        let path = dir.join(name);
        let listener = UnixListener::bind(&path).unwrap();
        Gate { path, listener }
    }

    /// The line of a script that stops here.
    pub fn line(&self) -> String {
        format!("gate {}", self.path.display())
    }

    /// Waits until the job stands here.
    pub fn reached(&self) -> Waiting {
        Waiting(self.listener.accept().unwrap().0)
    }

    /// A job that stands here now, if one does.
    pub fn try_reached(&self) -> Option<Waiting> {
        self.listener.set_nonblocking(true).unwrap();
        let came = self.listener.accept().ok();
        self.listener.set_nonblocking(false).unwrap();
        let (stream, _) = came?;
        stream.set_nonblocking(false).unwrap();
        Some(Waiting(stream))
    }

    /// Whether no job came here since the last look.
    pub fn is_empty(&self) -> bool {
        self.try_reached().is_none()
    }
}

impl Waiting {
    pub fn open(mut self) {
        self.0.write_all(b"g").unwrap();
    }
}

/// The job's side: waits until the test opens; the test's end opens too.
pub fn pass(path: &str) {
    let Ok(mut stream) = UnixStream::connect(path) else {
        return;
    };
    let _ = stream.read(&mut [0]);
}
