//! The tree written out: directories' blocks, then inodes, then the superblock.

use std::io::{self, Seek, Write};

use crate::data::{Content, Output};
use crate::directory::{self, Name};
use crate::disk::{self, BLOCK, FileType, InodeHead, Layout, NULL_BLOCK, SLOT, Superblock};
use crate::error::Error;
use crate::layout::{Link, Plan, Planned, ROOT_NID, names};
use crate::tree::{Body, Dir, Inode, InodeId, Tree};

/// Writes what is left of the image after its file contents; gives the number of inodes and blocks.
pub(crate) fn write<W: Write + Seek>(
    tree: &Tree,
    output: &mut Output<W>,
    uuid: [u8; 16],
    entry: u64,
) -> Result<(u64, u64), Error> {
    let plan = Plan::new(tree);
    let places = write_blocks(tree, &plan, output, entry)?;
    let meta_block = output.allocate(plan.bytes.div_ceil(BLOCK), entry)?;
    let base = u64::from(meta_block) * BLOCK;
    let mut bytes = Vec::new();
    for (number, (planned, place)) in plan.order.iter().zip(&places).enumerate() {
        bytes.clear();
        encode_inode(tree, &plan, planned, *place, number, &mut bytes);
        output.write_at(base + planned.nid * SLOT, &bytes)?;
    }
    let blocks = output.next_block();
    pad(output, base + plan.bytes, blocks)?;
    let inodes = plan.order.len() as u64;
    let superblock = Superblock {
        uuid,
        root: ROOT_NID,
        inodes,
        // `allocate` keeps block numbers below 2^32.
        blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
        meta_block,
        chunked: plan.chunked,
    };
    output.write_at(0, &superblock.encode())?;
    Ok((inodes, blocks))
}

/// Zeros to the end of the last block, so that the file has all of it.
fn pad<W: Write + Seek>(output: &mut Output<W>, written: u64, blocks: u64) -> io::Result<()> {
    let rest = usize::try_from(blocks * BLOCK - written).unwrap_or(0);
    output.write_at(written, &vec![0; rest])
}

/// Takes and writes the blocks of directories, long links and contents that found no room beside
/// their inode; gives each planned inode's first block.
fn write_blocks<W: Write + Seek>(
    tree: &Tree,
    plan: &Plan,
    output: &mut Output<W>,
    entry: u64,
) -> Result<Vec<u32>, Error> {
    let mut places = Vec::with_capacity(plan.order.len());
    let mut bytes = Vec::new();
    for planned in &plan.order {
        let blocks = planned.shape.blocks;
        if blocks == 0 {
            places.push(0);
            continue;
        }
        let first = output.allocate(blocks, entry)?;
        bytes.clear();
        content(tree, plan, planned.inode, &mut bytes);
        let whole = usize::try_from(blocks * BLOCK).unwrap_or(usize::MAX);
        bytes.resize(whole, 0);
        output.write_at(u64::from(first) * BLOCK, &bytes)?;
        places.push(first);
    }
    Ok(places)
}

fn encode_inode(
    tree: &Tree,
    plan: &Plan,
    planned: &Planned,
    place: u32,
    number: usize,
    out: &mut Vec<u8>,
) {
    let inode = &tree.arena[planned.inode];
    let shape = &planned.shape;
    let place = match &inode.body {
        Body::File(Content::Flat { block, .. }) => *block,
        Body::File(Content::Chunked { chunk_bits, .. }) => disk::chunk_format(*chunk_bits),
        Body::Node(node) => disk::device(*node),
        _ => place,
    };
    let head = InodeHead {
        meta: &inode.meta,
        file_type: file_type(inode),
        layout: shape.layout,
        links: links(tree, inode),
        size: shape.size,
        place,
        number: u32::try_from(number + 1).unwrap_or(u32::MAX),
        xattr_bytes: shape.xattr_bytes,
    };
    head.encode(out);
    disk::xattr::encode(&inode.meta.xattrs, out);
    match (&inode.body, shape.layout) {
        (
            Body::File(Content::Chunked {
                chunk_bits, runs, ..
            }),
            _,
        ) => {
            let step = 1 << (chunk_bits - disk::BLOCK_BITS);
            for run in runs {
                for chunk in 0..run.chunks {
                    let block = run.block.map_or(NULL_BLOCK, |block| block + chunk * step);
                    out.extend_from_slice(&block.to_le_bytes());
                }
            }
        }
        (_, Layout::Inline) => {
            let mut bytes = Vec::new();
            content(tree, plan, planned.inode, &mut bytes);
            let in_blocks = usize::try_from(shape.blocks * BLOCK).unwrap_or(usize::MAX);
            let start = out.len();
            out.extend_from_slice(bytes.get(in_blocks..).unwrap_or_default());
            out.resize(start + usize::try_from(shape.beside).unwrap_or(0), 0);
        }
        _ => {}
    }
}

/// A content that is held in memory or made from it.
fn content(tree: &Tree, plan: &Plan, id: InodeId, out: &mut Vec<u8>) {
    match &tree.arena[id].body {
        Body::Dir(dir) => directory::encode(&listing(tree, plan, id, dir), out),
        Body::Symlink(target) => out.extend_from_slice(target),
        Body::File(Content::Inline(bytes)) => out.extend_from_slice(bytes),
        Body::File(_) | Body::Node(_) => {}
    }
}

fn listing<'a>(tree: &'a Tree, plan: &Plan, id: InodeId, dir: &'a Dir) -> Vec<Name<'a>> {
    names(dir)
        .map(|(name, link)| {
            let target = match link {
                Link::Itself => id,
                Link::To(target) => target,
            };
            Name {
                name,
                nid: plan.nid(target),
                file_type: file_type(&tree.arena[target]),
            }
        })
        .collect()
}

fn file_type(inode: &Inode) -> FileType {
    match &inode.body {
        Body::Dir(_) => FileType::Directory,
        Body::File(_) => FileType::Regular,
        Body::Symlink(_) => FileType::Symlink,
        Body::Node(node) => (*node).into(),
    }
}

/// Names of a file; of a directory its own, its `.` and each subdirectory's `..`.
fn links(tree: &Tree, inode: &Inode) -> u32 {
    match &inode.body {
        Body::Dir(dir) => {
            let is_dir = |dirent: &&crate::tree::Dirent| tree.arena[dirent.inode].is_dir();
            let below = dir.entries.values().filter(is_dir).count();
            u32::try_from(below + 2).unwrap_or(u32::MAX)
        }
        _ => inode.links,
    }
}
