//! The job's `/etc/resolv.conf`.

use std::fs::File;
use std::io::Write;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use vk_guest_proto::Failure;

use crate::context::OrFail;
use crate::root::JobRoot;

const NAME: &str = "resolv.conf";

/// Makes it a file of this text. Whatever the image has in its place, such as a link to a file that
/// a resolver of its own would write, gives way.
pub(super) fn name(root: &JobRoot, text: &str) -> Result<(), Failure> {
    let what = || format!("write /etc/{NAME}");
    let directory = root.make_dirs(b"/etc", 0o755, None)?;
    match unlinkat(&directory, NAME, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno).or_fail(what),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&directory, NAME, flags, Mode::from_raw_mode(0o644)).or_fail(what)?;
    File::from(file).write_all(text.as_bytes()).or_fail(what)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_link_in_its_place_gives_way_and_what_it_names_stays() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("other"), "kept").unwrap();
        std::os::unix::fs::symlink("../other", root.path().join("etc/resolv.conf")).unwrap();
        let job = JobRoot::plain(File::open(root.path()).unwrap().into());
        for text in ["nameserver 192.0.2.1\n", "nameserver 192.0.2.2\n"] {
            name(&job, text).unwrap();
            let path = root.path().join("etc/resolv.conf");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
        }
        assert_eq!(
            fs::read_to_string(root.path().join("other")).unwrap(),
            "kept"
        );
    }
}
