//! Rules about each crate's manifest and the head of its root files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::TokenStream;
use syn::{AttrStyle, Attribute};

use super::Breach;
use crate::source;
use crate::workspace::{Metadata, Package, Target};

/// Crates that need `unsafe`, and what for. Each keeps it in its module `sys`.
const UNSAFE: [(&str, &str); 3] = [
    (
        "vk-agent",
        "an init forks and execs, and dials a vsock address that std does not know",
    ),
    (
        "vk-net",
        "the request that makes a tap, and a network namespace for one thread",
    ),
    (
        "vk-vm",
        "the time stamp counter, a descriptor-flag call, and namespaces unshared in a child",
    ),
];

/// Checks every crate.
pub(crate) fn check(root: &Path, metadata: &Metadata) -> Result<Vec<Breach>> {
    let mut breaches = Vec::new();
    for package in metadata.members() {
        let manifest = relative(root, &package.manifest_path);
        let text = fs::read_to_string(&package.manifest_path)
            .with_context(|| format!("reading {}", package.manifest_path.display()))?;
        breaches.extend(lints(&manifest, &text));
        breaches.extend(folder(&manifest, package));
        for target in package.targets.iter().filter(|target| is_root(target)) {
            let file = relative(root, &target.src_path);
            let (_, tree) = source::parse(root, &file)?;
            breaches.extend(head(&package.name, &file, &tree));
        }
    }
    Ok(breaches)
}

/// `unsafe` outside the module `sys` of the crates that may use it.
pub(crate) fn strays(file: &Path, tokens: &TokenStream) -> Vec<Breach> {
    let may = |(name, _): &(&str, &str)| {
        let sources = Path::new("crates").join(name).join("src");
        file == sources.join("sys.rs") || file.starts_with(sources.join("sys"))
    };
    if UNSAFE.iter().any(may) {
        return Vec::new();
    }
    let mut breaches = Vec::new();
    source::walk_idents(tokens, &mut |word| {
        if word == "unsafe" {
            let what = "unsafe belongs into the module `sys` of a crate that xtask lists";
            breaches.push(Breach::at(file, word.span().start().line, what));
        }
    });
    breaches
}

fn relative(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_path_buf()
}

/// Libraries and programs; a test or bench target has no head of its own to keep.
fn is_root(target: &Target) -> bool {
    target
        .kind
        .iter()
        .any(|kind| matches!(kind.as_str(), "lib" | "bin" | "proc-macro"))
}

fn lints(manifest: &Path, text: &str) -> Option<Breach> {
    let lines = text
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "[lints]")
        .skip(1);
    let inherits = lines
        .take_while(|line| !line.starts_with('['))
        .any(|line| line.replace(' ', "") == "workspace=true");
    (!inherits).then(|| Breach::in_file(manifest, "[lints] workspace = true is missing"))
}

fn folder(manifest: &Path, package: &Package) -> Option<Breach> {
    let named = package
        .dir()
        .file_name()
        .is_some_and(|name| name == package.name.as_str());
    (!named).then(|| Breach::in_file(manifest, "a crate's folder has the crate's name"))
}

fn head(name: &str, file: &Path, tree: &syn::File) -> Vec<Breach> {
    let mut breaches = Vec::new();
    if source::docs(&inner(tree)).trim().is_empty() {
        let what = "no `//!`: say what the crate holds and what it must not know";
        breaches.push(Breach::at(file, 1, what));
    }
    let may = UNSAFE.iter().any(|(known, _)| *known == name);
    if !may && !inner(tree).iter().any(forbids_unsafe) {
        let what = "#![forbid(unsafe_code)] is missing, and xtask names no reason for this crate";
        breaches.push(Breach::at(file, 1, what));
    }
    breaches
}

fn inner(tree: &syn::File) -> Vec<Attribute> {
    let is_inner = |attribute: &&Attribute| matches!(attribute.style, AttrStyle::Inner(_));
    tree.attrs.iter().filter(is_inner).cloned().collect()
}

fn forbids_unsafe(attribute: &Attribute) -> bool {
    let Ok(list) = attribute.meta.require_list() else {
        return false;
    };
    list.path.is_ident("forbid")
        && source::idents(&list.tokens)
            .iter()
            .any(|w| w == "unsafe_code")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(text: &str) -> usize {
        head(
            "vk-step",
            Path::new("lib.rs"),
            &syn::parse_file(text).unwrap(),
        )
        .len()
    }

    #[test]
    fn a_root_file_needs_a_doc_comment_and_the_ban() {
        assert_eq!(heads("//! Holds.\n#![forbid(unsafe_code)]\nmod a;"), 0);
        assert_eq!(heads("//! Holds.\n#![deny(unsafe_code)]"), 1);
        assert_eq!(heads("/// Of the module.\nmod a;"), 2);
    }

    #[test]
    fn unsafe_code_stays_in_its_module() {
        let tokens: TokenStream = "m! { fn a() { unsafe { b() } } }".parse().unwrap();
        let strays_in = |file: &str| strays(Path::new(file), &tokens).len();
        assert_eq!(strays_in("crates/vk-vm/src/sys.rs"), 0);
        assert_eq!(strays_in("crates/vk-agent/src/sys/vsock.rs"), 0);
        assert_eq!(strays_in("crates/vk-vm/src/confine.rs"), 1);
        assert_eq!(strays_in("crates/vk-hub/src/sys.rs"), 1);
        assert_eq!(
            strays(Path::new("a.rs"), &"\"unsafe\"".parse().unwrap()),
            []
        );
    }

    #[test]
    fn lints_are_inherited_in_their_own_table() {
        let holds = |text| lints(Path::new("Cargo.toml"), text).is_none();
        assert!(holds(
            "[package]\nname = \"a\"\n[lints]\nworkspace = true\n"
        ));
        assert!(!holds("[package]\nname = \"a\"\n"));
        assert!(!holds("[lints]\n[dependencies]\nworkspace = true\n"));
    }
}
