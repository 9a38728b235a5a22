//! The merge against a plain model of it: paths in a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::build;
use crate::reader::Image;
use crate::tarball::Tarball;

#[derive(Clone, Debug)]
enum Op {
    Dir(String),
    File(String, u8),
    Whiteout(String),
    Opaque(String),
}

#[derive(Clone, Debug, PartialEq)]
struct Kept {
    layer: usize,
    /// `None` for a directory.
    content: Option<u8>,
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4)
        .prop_map(|parts| parts.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => path().prop_map(Op::Dir),
        4 => (path(), any::<u8>()).prop_map(|(path, content)| Op::File(path, content)),
        2 => path().prop_map(Op::Whiteout),
        1 => path().prop_map(Op::Opaque),
    ]
}

fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Does one operation to the model; false where an archive with it is refused.
fn apply(model: &mut BTreeMap<String, Kept>, layer: usize, op: &Op) -> bool {
    match op {
        Op::Dir(path) | Op::File(path, _) => {
            if parents(path).any(|dir| model.get(dir).is_some_and(|kept| kept.content.is_some())) {
                return false;
            }
            for dir in parents(path) {
                model.insert(
                    dir.into(),
                    Kept {
                        layer,
                        content: None,
                    },
                );
            }
            let content = if let Op::File(_, content) = op {
                Some(*content)
            } else {
                None
            };
            if content.is_some() {
                model.retain(|other, _| !is_below(other, path));
            }
            model.insert(path.clone(), Kept { layer, content });
        }
        Op::Whiteout(path) => {
            model.retain(|other, kept| {
                !(other == path || is_below(other, path)) || kept.layer == layer
            });
        }
        Op::Opaque(path) => {
            model.retain(|other, kept| !is_below(other, path) || kept.layer == layer)
        }
    }
    true
}

fn tar(tar: Tarball, op: &Op) -> Tarball {
    match op {
        Op::Dir(path) => tar.dir(path),
        Op::File(path, content) => tar.file(path, [*content]),
        Op::Whiteout(path) => match path.rsplit_once('/') {
            Some((dir, name)) => tar.file(&format!("{dir}/.wh.{name}"), ""),
            None => tar.file(&format!(".wh.{path}"), ""),
        },
        Op::Opaque(path) => tar.file(&format!("{path}/.wh..wh..opq"), ""),
    }
}

proptest! {
    #[test]
    fn layers_merge_as_the_model_does(
        layers in prop::collection::vec(prop::collection::vec(op(), 0..12), 1..4)
    ) {
        let mut model = BTreeMap::new();
        let mut tars = Vec::new();
        for (layer, ops) in layers.iter().enumerate() {
            let mut archive = Tarball::default();
            for op in ops {
                if apply(&mut model, layer, op) {
                    archive = tar(archive, op);
                }
            }
            tars.push(archive.finish());
        }
        let image = Image::new(build(&tars).unwrap());
        let found: BTreeMap<String, Option<u8>> = image
            .tree()
            .into_iter()
            .skip(1)
            .map(|(path, inode)| {
                let content = (!inode.is_dir()).then(|| image.content(&inode)[0]);
                (String::from_utf8(path).unwrap(), content)
            })
            .collect();
        let wanted: BTreeMap<String, Option<u8>> =
            model.into_iter().map(|(path, kept)| (path, kept.content)).collect();
        prop_assert_eq!(found, wanted);
    }

    /// Whatever bytes come, building ends with an image or an error.
    #[test]
    fn no_bytes_make_the_reader_panic(
        ops in prop::collection::vec(op(), 0..6),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        fix in any::<bool>(),
    ) {
        let mut bytes = ops.iter().fold(Tarball::default(), tar).finish();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if fix {
            for block in bytes.chunks_mut(512) {
                let mut header = tar::Header::new_old();
                header.as_mut_bytes().copy_from_slice(block);
                header.set_cksum();
                block.copy_from_slice(header.as_bytes());
            }
        }
        if let Ok(image) = build(&[bytes]) {
            Image::new(image).tree();
        }
    }
}
