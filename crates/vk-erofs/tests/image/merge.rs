//! Layers on layers: what container runtimes do, done to the tree.

use vk_erofs::{Builder, Options, Whiteouts};

use crate::reader::{Image, Tree};
use crate::tarball::{Said, Tarball};
use crate::{build, tree};

fn paths(tree: &Tree) -> Vec<String> {
    tree.keys()
        .skip(1)
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect()
}

fn text(layers: &[Vec<u8>], path: &str) -> String {
    let image = Image::new(build(layers).unwrap());
    let tree = image.tree();
    String::from_utf8(image.content(&tree[path.as_bytes()])).unwrap()
}

#[test]
fn a_whiteout_removes_what_a_lower_layer_has_and_spares_its_own_layer() {
    let lower = Tarball::default()
        .file("d/a", "1")
        .file("d/b", "1")
        .dir("e/f")
        .finish();
    let upper = Tarball::default()
        .file("d/b", "2")
        .file("d/.wh.a", "")
        .file("d/.wh.b", "")
        .file(".wh.e", "")
        .file("d/.wh.absent", "")
        .file("absent/.wh.x", "")
        .finish();
    assert_eq!(paths(&tree(&[lower.clone(), upper.clone()])), ["d", "d/b"]);
    assert_eq!(text(&[lower, upper], "d/b"), "2");
}

#[test]
fn a_whiteout_before_its_replacement_leaves_nothing_of_the_lower_directory() {
    let lower = Tarball::default().file("d/old", "1").finish();
    let upper = Tarball::default()
        .file(".wh.d", "")
        .dir("d")
        .file("d/new", "2")
        .finish();
    assert_eq!(paths(&tree(&[lower, upper])), ["d", "d/new"]);
}

#[test]
fn an_opaque_directory_hides_all_lower_entries_wherever_it_stands_in_the_layer() {
    let lower = Tarball::default()
        .file("d/a/b/c", "1")
        .file("d/x", "1")
        .file("keep", "1")
        .finish();
    let before = Tarball::default()
        .dir("d")
        .file("d/.wh..wh..opq", "")
        .file("d/a/new", "2");
    let after = Tarball::default()
        .file("d/a/new", "2")
        .file("d/.wh..wh..opq", "");
    for upper in [before, after] {
        let tree = tree(&[lower.clone(), upper.finish()]);
        assert_eq!(paths(&tree), ["d", "d/a", "d/a/new", "keep"]);
    }
    let root = Tarball::default()
        .file("new", "2")
        .file(".wh..wh..opq", "")
        .finish();
    assert_eq!(paths(&tree(&[lower, root])), ["new"]);
}

#[test]
fn a_whiteout_of_a_directory_spares_what_its_own_layer_put_below() {
    let lower = Tarball::default()
        .file("d/a", "1")
        .file("d/s/b", "1")
        .finish();
    let upper = Tarball::default()
        .file("d/s/new", "2")
        .file(".wh.d", "")
        .finish();
    assert_eq!(paths(&tree(&[lower, upper])), ["d", "d/s", "d/s/new"]);
}

#[test]
fn names_that_belong_to_the_layer_itself_are_no_files() {
    let layer = Tarball::default()
        .file(".wh..wh.aufs", "")
        .dir(".wh..wh.plnk")
        .file(".wh..wh.plnk/1.2", "x")
        .file("a", "1")
        .finish();
    assert_eq!(paths(&tree(&[layer])), ["a"]);
}

#[test]
fn whiteouts_of_a_root_file_system_are_ordinary_names() {
    let layer = Tarball::default()
        .file(".wh.a", "x")
        .file("a", "1")
        .finish();
    let mut builder = Builder::new(std::io::Cursor::new(Vec::new()), Options::default());
    builder.layer(&layer[..], Whiteouts::Literal).unwrap();
    let (output, _) = builder.finish().unwrap();
    assert_eq!(
        paths(&Image::new(output.into_inner()).tree()),
        [".wh.a", "a"]
    );
}

#[test]
fn a_hard_link_reaches_into_a_lower_layer() {
    let lower = Tarball::default().file("d/a", "shared").finish();
    let upper = Tarball::default()
        .hard_link("e/b", "d/a")
        .hard_link("c", "/d/../d/a")
        .finish();
    let tree = tree(&[lower, upper]);
    let inode = &tree[&b"d/a"[..]];
    assert_eq!(inode.nlink, 3);
    assert_eq!(&tree[&b"e/b"[..]], inode);
    assert_eq!(&tree[&b"c"[..]], inode);
}

#[test]
fn replacing_one_name_of_a_hard_link_leaves_the_other() {
    let lower = Tarball::default()
        .file("a", "old")
        .hard_link("b", "a")
        .finish();
    let upper = Tarball::default().file("a", "new").finish();
    assert_eq!(text(&[lower.clone(), upper.clone()], "a"), "new");
    assert_eq!(text(&[lower.clone(), upper], "b"), "old");
    let gone = Tarball::default().file(".wh.a", "").finish();
    assert_eq!(tree(&[lower, gone])[&b"b"[..]].nlink, 1);
}

#[test]
fn a_hard_link_replaces_what_it_stands_on() {
    let lower = Tarball::default()
        .file("t", "target")
        .file("f", "x")
        .dir("d")
        .file("d/t", "in")
        .finish();
    let upper = Tarball::default()
        .hard_link("f", "t")
        .hard_link("f", "t")
        .hard_link("t", "t")
        .hard_link("d", "d/t")
        .finish();
    let layers = [lower, upper];
    assert_eq!(paths(&tree(&layers)), ["d", "f", "t"]);
    assert_eq!(tree(&layers)[&b"t"[..]].nlink, 2);
    assert_eq!(text(&layers, "d"), "in");
}

#[test]
fn a_hard_link_to_a_symbolic_link_is_not_followed() {
    let layer = Tarball::default()
        .symlink("s", "t")
        .file("t", "1")
        .hard_link("h", "s")
        .finish();
    let tree = tree(&[layer]);
    assert_eq!(tree[&b"h"[..]].nid, tree[&b"s"[..]].nid);
    assert_eq!(tree[&b"h"[..]].mode, 0o120_777);
}

#[test]
fn a_directory_takes_new_metadata_and_keeps_its_entries() {
    let lower = Tarball::default()
        .entry(
            b'5',
            b"d",
            &Said::mode(0o700).xattr("user.old", "1"),
            b"",
            b"",
        )
        .file("d/a", "1")
        .finish();
    let said = Said::mode(0o1777).owner(5, 6).xattr("user.new", "2");
    let upper = Tarball::default()
        .entry(b'5', b"d/", &said, b"", b"")
        .finish();
    let tree = tree(&[lower, upper]);
    let dir = &tree[&b"d"[..]];
    assert_eq!((dir.mode, dir.uid, dir.gid), (0o041_777, 5, 6));
    assert_eq!(dir.xattrs.keys().collect::<Vec<_>>(), [b"user.new"]);
    assert!(tree.contains_key(&b"d/a"[..]));
}

#[test]
fn a_type_change_replaces_the_whole_of_what_was_there() {
    let lower = Tarball::default()
        .file("d/a/b", "1")
        .file("f", "1")
        .symlink("s", "d")
        .finish();
    let upper = Tarball::default()
        .file("d", "now a file")
        .dir("f")
        .file("f/x", "1")
        .dir("s")
        .finish();
    let tree = tree(&[lower, upper]);
    assert_eq!(paths(&tree), ["d", "f", "f/x", "s"]);
    assert!(tree[&b"s"[..]].is_dir());
}

#[test]
fn entries_below_a_symbolic_link_go_where_it_points_inside_the_root() {
    let lower = Tarball::default()
        .dir("usr/lib")
        .symlink("lib", "usr/lib")
        .symlink("up", "../../../usr")
        .symlink("abs", "/usr/lib/../lib")
        .symlink("dangling", "made/here")
        .finish();
    let upper = Tarball::default()
        .file("lib/a", "1")
        .file("up/b", "1")
        .file("abs/c", "1")
        .file("dangling/d", "1")
        .file("lib/.wh.none", "")
        .finish();
    let found = paths(&tree(&[lower, upper]));
    let wanted = ["usr", "usr/b", "usr/lib", "usr/lib/a", "usr/lib/c"];
    for path in wanted.into_iter().chain(["made/here/d", "lib"]) {
        assert!(
            found.iter().any(|found| found == path),
            "{path} in {found:?}"
        );
    }
}

#[test]
fn names_that_climb_stay_inside_the_root() {
    let layer = Tarball::default()
        .file("../../etc/passwd", "1")
        .file("/a/../../b", "2")
        .finish();
    assert_eq!(paths(&tree(&[layer])), ["b", "etc", "etc/passwd"]);
}

#[test]
fn the_root_takes_its_own_entry() {
    let layer = Tarball::default()
        .entry(b'5', b"./", &Said::mode(0o711).owner(1, 2), b"", b"")
        .finish();
    let tree = tree(&[layer]);
    let root = &tree[&b""[..]];
    assert_eq!(
        (root.mode, root.uid, root.gid, root.nlink),
        (0o040_711, 1, 2, 2)
    );
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let layers = crate::rich::layers(true);
    assert_eq!(build(&layers).unwrap(), build(&layers).unwrap());
}
