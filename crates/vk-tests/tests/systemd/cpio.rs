//! A second archive behind the boot bundle's: what a host starts with that no image has.

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// An archive in the form that kernels take ("newc"): directories, then programs and other files.
pub(crate) fn archive(directories: &[&str], files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for name in directories {
        entry(&mut out, name, DIRECTORY, &[]);
    }
    for (name, data) in files {
        let is_program = data.starts_with(b"#!") || data.starts_with(b"\x7fELF");
        entry(
            &mut out,
            name,
            if is_program { PROGRAM } else { FILE },
            data,
        );
    }
    entry(&mut out, "TRAILER!!!", 0, &[]);
    out
}

fn entry(out: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]) {
    let (size, name_size) = (data.len(), name.len() + 1);
    // Number, mode, owner, group, links, time, size, two devices of two numbers, name, check.
    let number = out.len();
    let fields = [
        number,
        usize::try_from(mode).unwrap(),
        0,
        0,
        1,
        0,
        size,
        0,
        0,
        0,
        0,
        name_size,
        0,
    ];
    out.extend(b"070701");
    for field in fields {
        out.extend(format!("{field:08x}").as_bytes());
    }
    out.extend(name.as_bytes());
    out.push(0);
    pad(out);
    out.extend(data);
    pad(out);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}
