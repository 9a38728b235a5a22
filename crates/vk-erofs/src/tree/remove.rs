//! Names taken out of the tree: replaced, whited out, hidden by an opaque directory.

use super::{Body, InodeId, Tree, dirent_weight};

impl Tree {
    /// Removes a name and, where it was the last of its inode, the inode and all below it.
    pub(super) fn unlink(&mut self, dir: InodeId, name: &[u8]) {
        let Body::Dir(entries) = &mut self.arena[dir].body else {
            return;
        };
        let Some(dirent) = entries.entries.remove(name) else {
            return;
        };
        self.weight -= dirent_weight(name);
        let mut dropped = vec![dirent.inode];
        while let Some(id) = dropped.pop() {
            let inode = &mut self.arena[id];
            inode.links = inode.links.saturating_sub(1);
            if inode.links > 0 {
                continue;
            }
            let inode = self.arena.remove(id);
            self.weight -= inode.weight();
            if let Body::Dir(gone) = inode.body {
                for (name, below) in gone.entries {
                    self.weight -= dirent_weight(&name);
                    dropped.push(below.inode);
                }
            }
        }
    }

    /// Hides what lower layers put at `name`: all of it, or all but what the present layer put at or
    /// below it.
    pub(crate) fn white_out(&mut self, dir: InodeId, name: &[u8]) {
        match self.entry(dir, name) {
            Some(dirent) if dirent.layer < self.layer => self.unlink(dir, name),
            Some(dirent) => self.hide_lower(dirent.inode),
            None => {}
        }
    }

    /// Hides what lower layers put below a directory, at every depth.
    pub(crate) fn hide_lower(&mut self, dir: InodeId) {
        let mut open = vec![dir];
        while let Some(id) = open.pop() {
            let Body::Dir(dir) = &self.arena[id].body else {
                continue;
            };
            let mut lower = Vec::new();
            for (name, dirent) in &dir.entries {
                if dirent.layer < self.layer {
                    lower.push(name.clone());
                } else {
                    open.push(dirent.inode);
                }
            }
            for name in lower {
                self.unlink(id, &name);
            }
        }
    }
}
