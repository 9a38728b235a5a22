//! Where the programs are that a VM is made with.

use std::env;
use std::path::{Path, PathBuf};

/// Directories that hold programs on every distribution, though not in an ordinary user's PATH.
const ALWAYS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/sbin"];

/// The first file called `name` in PATH, then in the usual directories.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let always = ALWAYS.iter().map(PathBuf::from);
    let places = env::split_paths(&path)
        .filter(|place| place.is_absolute())
        .chain(always);
    places
        .map(|place| place.join(name))
        .find(|program| is_program(program))
}

/// The file called `name` beside this program, then as [`find`].
#[must_use]
pub fn find_beside(name: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok().map(|own| own.with_file_name(name));
    beside
        .filter(|program| is_program(program))
        .or_else(|| find(name))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|of| of.is_file() && of.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_and_what_is_none_is_not() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program-anywhere"), None);
        assert!(!is_program(Path::new("/etc/passwd")) && !is_program(Path::new("/usr")));
    }
}
