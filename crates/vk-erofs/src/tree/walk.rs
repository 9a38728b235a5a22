//! The way to a directory, through symbolic links, without ever leaving the root.

use std::collections::VecDeque;

use crate::error::Fault;
use crate::limits::FOLLOW_MAX;
use crate::metadata::Metadata;
use crate::path;

use super::{Body, InodeId, NewBody, Tree};

/// What to do where the way ends early.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// Make a directory, as a container runtime does for an entry without one.
    Make,
    /// Say that there is none.
    Stop,
}

impl Tree {
    /// The directory at `path`, where there is one.
    pub(crate) fn resolve(&mut self, path: &[&[u8]]) -> Result<Option<InodeId>, Fault> {
        self.walk(path, Missing::Stop)
    }

    /// The directory at `path`; what is missing of it is made, root-owned with mode 0755.
    pub(super) fn resolve_or_make(&mut self, path: &[&[u8]]) -> Result<InodeId, Fault> {
        self.walk(path, Missing::Make)?.ok_or(Fault::NotADirectory)
    }

    fn walk(&mut self, path: &[&[u8]], missing: Missing) -> Result<Option<InodeId>, Fault> {
        let mut ahead: VecDeque<Box<[u8]>> = path.iter().map(|name| (*name).into()).collect();
        let mut here = self.root;
        let mut steps = 0;
        let mut followed = 0;
        while let Some(name) = ahead.pop_front() {
            steps += 1;
            if steps > self.depth_max {
                return Err(Fault::Depth);
            }
            if &*name == b".." {
                here = self.parent(here);
                continue;
            }
            let Some(dirent) = self.entry(here, &name) else {
                if missing == Missing::Stop {
                    return Ok(None);
                }
                here = self.make_directory(here, &name);
                continue;
            };
            match &self.arena[dirent.inode].body {
                Body::Dir(_) => {
                    if missing == Missing::Make {
                        self.stamp(here, &name);
                    }
                    here = dirent.inode;
                }
                Body::Symlink(target) => {
                    followed += 1;
                    if followed > FOLLOW_MAX {
                        return Err(Fault::Loop);
                    }
                    let absolute = target.starts_with(b"/");
                    for part in target_parts(target, self.path_bytes)?.into_iter().rev() {
                        ahead.push_front(part);
                    }
                    if absolute {
                        here = self.root;
                    }
                }
                Body::File(_) | Body::Node(_) if missing == Missing::Stop => return Ok(None),
                Body::File(_) | Body::Node(_) => return Err(Fault::NotADirectory),
            }
        }
        Ok(Some(here))
    }

    fn parent(&self, dir: InodeId) -> InodeId {
        match &self.arena[dir].body {
            Body::Dir(dir) => dir.parent,
            _ => self.root,
        }
    }

    fn make_directory(&mut self, parent: InodeId, name: &[u8]) -> InodeId {
        let meta = Metadata::with_mode(0o755);
        self.weight += NewBody::Dir.weight();
        let body = NewBody::Dir.into_body(parent);
        let inode = self.arena.insert(super::Inode {
            meta,
            links: 0,
            body,
        });
        self.link(parent, name, inode);
        inode
    }
}

/// A link target's components with its `..` kept: it is taken from where the link really stands.
fn target_parts(target: &[u8], path_bytes: usize) -> Result<Vec<Box<[u8]>>, Fault> {
    // Checks lengths and zero bytes; its own reading of `..` is for names, not for targets.
    path::components(target, path_bytes)?;
    let kept = target
        .split(|byte| *byte == b'/')
        .filter(|part| !matches!(*part, b"" | b"."));
    Ok(kept.map(Into::into).collect())
}
