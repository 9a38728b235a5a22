//! `inode-list [--whole] DIR`: one line of JSON for every inode of the tree at `DIR`, what is mounted
//! below it left out. Tests send it into a guest to see there what an image became.
//!
//! With `--whole`, files of any size are hashed byte by byte.

#![forbid(unsafe_code)]

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::bail;
use vk_tests::content::WHOLE_MAX;
use vk_tests::walk::walk;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (root, whole_max) = match arguments.as_slice() {
        [root] => (root, WHOLE_MAX),
        [flag, root] if flag == "--whole" => (root, u64::MAX),
        _ => bail!("usage: inode-list [--whole] DIR"),
    };
    let mut output = BufWriter::new(std::io::stdout().lock());
    walk(Path::new(root), whole_max, |found| {
        serde_json::to_writer(&mut output, &found)?;
        output.write_all(b"\n")
    })?;
    output.flush()?;
    Ok(())
}
