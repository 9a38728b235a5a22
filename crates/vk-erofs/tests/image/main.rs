//! Images built from tar streams, read back by a reader of their own, by `fsck.erofs` and, for
//! root, by the running kernel.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods
)]

mod contents;
mod external;
mod extracted;
mod hostile;
mod merge;
mod model;
mod reader;
mod rich;
mod tarball;

use std::io::Cursor;

use vk_erofs::{Builder, Error, Limits, Options, Whiteouts};

/// Layers to an image's bytes.
fn build(layers: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    build_within(layers, Limits::default())
}

fn build_within(layers: &[Vec<u8>], limits: Limits) -> Result<Vec<u8>, Error> {
    let options = Options {
        limits,
        uuid: [7; 16],
    };
    let mut builder = Builder::new(Cursor::new(Vec::new()), options);
    for layer in layers {
        builder.layer(layer.as_slice(), Whiteouts::Oci)?;
    }
    let (output, summary) = builder.finish()?;
    let bytes = output.into_inner();
    assert_eq!(bytes.len() as u64, summary.bytes);
    Ok(bytes)
}

/// Layers to a read-back tree.
fn tree(layers: &[Vec<u8>]) -> reader::Tree {
    reader::Image::new(build(layers).unwrap()).tree()
}
