//! Reading Rust sources as trees: files, attributes, and token streams inside macros.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::{Attribute, Expr, Lit, Meta};

/// Reads and parses one file; the error names file, line and column.
pub(crate) fn parse(root: &Path, file: &Path) -> Result<(String, syn::File)> {
    let path = root.join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let tree = syn::parse_file(&text).map_err(|error| {
        let start = error.span().start();
        anyhow!(
            "{}:{}:{}: {error}",
            file.display(),
            start.line,
            start.column + 1
        )
    })?;
    Ok((text, tree))
}

/// Whether a file is Rust.
pub(crate) fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

/// The text of the doc comments among some attributes, a line each.
pub(crate) fn docs(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        let Meta::NameValue(pair) = &attribute.meta else {
            continue;
        };
        let Expr::Lit(literal) = &pair.value else {
            continue;
        };
        let Lit::Str(line) = &literal.lit else {
            continue;
        };
        if pair.path.is_ident("doc") {
            text.push_str(&line.value());
            text.push('\n');
        }
    }
    text
}

/// Whether an attribute makes a function a test: `#[test]`, `#[tokio::test]`, `#[test_case(…)]`.
pub(crate) fn makes_a_test(attribute: &Attribute) -> bool {
    let last = attribute
        .path()
        .segments
        .last()
        .map(|segment| segment.ident.to_string());
    matches!(
        last.as_deref(),
        Some("test" | "test_case" | "test_matrix" | "rstest")
    )
}

/// Whether an attribute is `#[cfg(test)]` or a condition that names `test` positively.
pub(crate) fn is_cfg_test(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else {
        return false;
    };
    list.path.is_ident("cfg")
        && idents(&list.tokens)
            .first()
            .is_some_and(|word| word == "test")
}

/// Calls `seen` with every identifier of a token stream, groups opened.
pub(crate) fn walk_idents(tokens: &TokenStream, seen: &mut impl FnMut(&Ident)) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => seen(&ident),
            TokenTree::Group(group) => walk_idents(&group.stream(), seen),
            _ => {}
        }
    }
}

/// Every identifier of a token stream, groups opened, as text.
pub(crate) fn idents(tokens: &TokenStream) -> Vec<String> {
    let mut words = Vec::new();
    walk_idents(tokens, &mut |ident| words.push(ident.to_string()));
    words
}

/// Walks a macro's tokens, groups opened, and calls `seen` with each identifier, the attributes
/// that stand directly before it (through `pub`, `async`, `const`, `unsafe` and `fn`), and whether
/// `fn` stands before it.
pub(crate) fn walk_named(tokens: &TokenStream, seen: &mut impl FnMut(&Ident, &[Attribute], bool)) {
    let mut attributes: Vec<Attribute> = Vec::new();
    let mut after_fn = false;
    let mut rest = tokens.clone().into_iter().peekable();
    while let Some(token) = rest.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                if let Some(TokenTree::Group(group)) = rest.peek() {
                    let hash = TokenTree::Punct(punct);
                    let pair = [hash, TokenTree::Group(group.clone())]
                        .into_iter()
                        .collect();
                    attributes.extend(Attribute::parse_outer.parse2(pair).unwrap_or_default());
                    rest.next();
                }
            }
            TokenTree::Ident(ident) if is_qualifier(&ident) => {}
            TokenTree::Ident(ident) if ident == "fn" => after_fn = true,
            TokenTree::Ident(ident) => {
                seen(&ident, &attributes, after_fn);
                attributes.clear();
                after_fn = false;
            }
            TokenTree::Group(group) => {
                walk_named(&group.stream(), seen);
                attributes.clear();
                after_fn = false;
            }
            _ => {
                attributes.clear();
                after_fn = false;
            }
        }
    }
}

/// A word that may stand between a function's attributes and its `fn`.
fn is_qualifier(ident: &Ident) -> bool {
    ["pub", "async", "const", "unsafe"]
        .iter()
        .any(|word| ident == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfg_test_is_told_from_other_conditions() {
        let holds = |text: &str| {
            let attributes = Attribute::parse_outer.parse_str(text).unwrap();
            is_cfg_test(&attributes[0])
        };
        assert!(holds("#[cfg(test)]"));
        assert!(!holds("#[cfg(not(test))]"));
        assert!(!holds("#[cfg(feature = \"test\")]"));
        assert!(!holds("#[test]"));
    }

    #[test]
    fn a_file_that_does_not_parse_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("bad.rs"), "fn a() {}\nfn b( {}\n").unwrap();
        let error = parse(dir.path(), Path::new("bad.rs"))
            .err()
            .unwrap()
            .to_string();
        assert!(error.starts_with("bad.rs:2:"), "{error}");
    }
}
