//! Pure crates: nothing that does I/O, knows a clock or draws random numbers among what they are
//! built from, and no use of such parts of `std` in their own sources.

use std::path::{Path, PathBuf};

use anyhow::Result;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemFn, ItemMod, ItemUse, UseTree};

use super::Breach;
use crate::source;
use crate::workspace::{self, Metadata};

/// The crates that must stay pure.
pub(crate) const PURE: [&str; 9] = [
    "vk-step",
    "vk-hub-proto",
    "vk-guest-proto",
    "vk-trace",
    "vk-hub-core",
    "vk-node-core",
    "vk-gitlab-core",
    "vk-stage-core",
    "vk-ci-config",
];

/// What none of them may be built from, at any depth.
const IMPURE: [&str; 8] = [
    "tokio",
    "rusqlite",
    "rand",
    "rand_core",
    "getrandom",
    "hyper",
    "reqwest",
    "mio",
];

/// The parts of `std` that none of them may name. Address types of `std::net` are data and allowed.
const STD: [&[&str]; 12] = [
    &["fs"],
    &["env"],
    &["process"],
    &["thread"],
    &["os"],
    &["net", "TcpListener"],
    &["net", "TcpStream"],
    &["net", "UdpSocket"],
    &["net", "ToSocketAddrs"],
    &["time", "Instant"],
    &["time", "SystemTime"],
    &["time", "UNIX_EPOCH"],
];

/// Checks trees of dependencies and sources.
pub(crate) fn check(root: &Path, metadata: &Metadata, files: &[PathBuf]) -> Result<Vec<Breach>> {
    let mut breaches = Vec::new();
    for name in PURE.iter().filter(|name| metadata.member(name).is_some()) {
        let tree = workspace::stdout_of(
            workspace::cargo(root)
                .args([
                    "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}",
                ])
                .args(["--package", name]),
            "cargo tree",
        )?;
        let folder = Path::new("crates").join(name);
        breaches.extend(dependencies(&folder, &tree));
        let sources = folder.join("src");
        for file in files
            .iter()
            .filter(|file| is_product_source(file, &sources))
        {
            let (_, tree) = source::parse(root, file)?;
            breaches.extend(uses(file, &tree));
        }
    }
    Ok(breaches)
}

/// Sources of the crate itself; files of tests may read fixtures.
fn is_product_source(file: &Path, sources: &Path) -> bool {
    file.starts_with(sources)
        && source::is_rust(file)
        && !file.with_extension("").iter().any(|part| part == "tests")
}

fn dependencies(folder: &Path, tree: &str) -> Vec<Breach> {
    let manifest = folder.join("Cargo.toml");
    let mut names: Vec<&str> = tree
        .lines()
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    names.sort_unstable();
    names.dedup();
    let impure = names.into_iter().filter(|name| IMPURE.contains(name));
    impure
        .map(|name| {
            Breach::in_file(
                &manifest,
                format!("a pure crate must not be built from {name}"),
            )
        })
        .collect()
}

fn uses(file: &Path, tree: &syn::File) -> Vec<Breach> {
    let mut seen = Uses {
        file,
        breaches: Vec::new(),
    };
    seen.visit_file(tree);
    seen.breaches
}

struct Uses<'a> {
    file: &'a Path,
    breaches: Vec<Breach>,
}

impl Uses<'_> {
    fn path(&mut self, segments: &[String], line: usize) {
        let Some((first, rest)) = segments.split_first() else {
            return;
        };
        let banned = STD.iter().any(|banned| {
            banned.len() <= rest.len() && banned.iter().zip(rest).all(|(a, b)| a == b)
        });
        if banned && (first == "std" || first == "core") {
            let what = format!("a pure crate must not use {}", segments.join("::"));
            self.breaches.push(Breach::at(self.file, line, what));
        }
    }

    fn tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.tree(&path.tree, &with(&path.ident)),
            UseTree::Name(name) => self.path(&with(&name.ident), name.ident.span().start().line),
            UseTree::Rename(name) => self.path(&with(&name.ident), name.ident.span().start().line),
            UseTree::Glob(glob) => self.path(before, glob.star_token.span.start().line),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, before)),
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !item.attrs.iter().any(source::is_cfg_test) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !item.attrs.iter().any(source::is_cfg_test) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !item.attrs.iter().any(source::is_cfg_test) {
            self.tree(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<_> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let line = path
            .segments
            .first()
            .map_or(0, |s| s.ident.span().start().line);
        self.path(&words, line);
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let Ok(list) = attribute.meta.require_list() else {
            return;
        };
        let lifts = list.path.is_ident("allow") || list.path.is_ident("expect");
        if lifts
            && source::idents(&list.tokens)
                .iter()
                .any(|word| word == "disallowed_methods")
        {
            let line = attribute.pound_token.span.start().line;
            let what = "a pure crate does not lift clippy's bans";
            self.breaches.push(Breach::at(self.file, line, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<String> {
        let tree = syn::parse_file(text).unwrap();
        uses(Path::new("a.rs"), &tree)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn files_clocks_and_sockets_are_found_however_they_are_named() {
        for text in [
            "use std::fs;",
            "use std::{collections::BTreeMap, fs::File};",
            "use std::time::Instant as I;",
            "use std::fs::*;",
            "fn a() { let t = std::time::SystemTime::now(); }",
            "fn a() -> std::net::TcpStream { b() }",
            "mod a { fn b() { std::env::var(\"X\"); } }",
            "#[allow(clippy::disallowed_methods)] fn a() {}",
        ] {
            assert_eq!(said(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn durations_addresses_and_tests_are_allowed() {
        for text in [
            "use std::time::Duration;",
            "use std::net::IpAddr;",
            "use std::collections::BTreeMap; use std::fmt;",
            "#[cfg(test)] mod tests { use std::fs; fn a() { std::env::var(\"X\"); } }",
        ] {
            assert_eq!(said(text), [] as [String; 0], "{text}");
        }
    }

    #[test]
    fn an_impure_crate_is_found_at_any_depth() {
        let tree = "vk-step v0.1.0 (/x)\nstrum v0.28.0\nuuid v1.0.0\ngetrandom v0.3.0\n";
        let found = dependencies(Path::new("crates/vk-step"), tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("getrandom"));
        assert!(dependencies(Path::new("x"), "vk-step v0.1.0\nrandom-name v1\n").is_empty());
    }
}
