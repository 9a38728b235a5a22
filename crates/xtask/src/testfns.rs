//! Finds the tests of a source file, with the doc comment directly above each.
//!
//! Found are functions under `#[test]` and its kin, at any depth; functions under `#[test]` inside
//! a macro (`proptest! { … }`); and the rows of a table macro: where a file defines a macro whose
//! body makes tests, each documented name in its calls is one.

use std::path::Path;

use anyhow::Result;
use proc_macro2::{Ident, TokenStream};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, ItemFn, ItemMacro, Macro};

use crate::source;

/// One test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestFn {
    /// The line of its name, from 1.
    pub(crate) line: usize,
    pub(crate) name: String,
    /// The doc comment directly above it.
    pub(crate) docs: String,
}

/// The tests of one file, in the order of their lines.
pub(crate) fn in_file(root: &Path, file: &Path) -> Result<Vec<TestFn>> {
    let (_, tree) = source::parse(root, file)?;
    Ok(in_tree(&tree))
}

/// The tests of a parsed file.
pub(crate) fn in_tree(tree: &syn::File) -> Vec<TestFn> {
    let mut tables = TableMacros::default();
    tables.visit_file(tree);
    let mut finder = Finder {
        tables: tables.names,
        found: Vec::new(),
    };
    finder.visit_file(tree);
    finder.found.sort_by_key(|test| test.line);
    finder.found
}

/// Collects the names of the file's own macros that make tests.
#[derive(Default)]
struct TableMacros {
    names: Vec<String>,
}

impl<'ast> Visit<'ast> for TableMacros {
    fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
        let Some(name) = &item.ident else { return };
        let mut makes_tests = false;
        attributes_in(&item.mac.tokens, &mut |attribute| {
            makes_tests |= source::makes_a_test(attribute);
        });
        if makes_tests {
            self.names.push(name.to_string());
        }
    }
}

/// Calls `seen` with each attribute written in a macro's body, before whatever it stands.
fn attributes_in(tokens: &TokenStream, seen: &mut impl FnMut(&Attribute)) {
    use proc_macro2::TokenTree::{Group, Punct};
    use syn::parse::Parser;
    let mut rest = tokens.clone().into_iter().peekable();
    while let Some(token) = rest.next() {
        match (token, rest.peek()) {
            (Punct(punct), Some(Group(group))) if punct.as_char() == '#' => {
                let pair = [Punct(punct), Group(group.clone())].into_iter().collect();
                let parsed = Attribute::parse_outer.parse2(pair).unwrap_or_default();
                parsed.iter().for_each(&mut *seen);
            }
            (Group(group), _) => attributes_in(&group.stream(), seen),
            _ => {}
        }
    }
}

struct Finder {
    tables: Vec<String>,
    found: Vec<TestFn>,
}

impl Finder {
    fn take(&mut self, name: &Ident, attributes: &[Attribute]) {
        self.found.push(TestFn {
            line: name.span().start().line,
            name: name.to_string(),
            docs: source::docs(attributes),
        });
    }

    fn take_if_test(&mut self, name: &Ident, attributes: &[Attribute]) {
        if attributes.iter().any(source::makes_a_test) {
            self.take(name, attributes);
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.take_if_test(&item.sig.ident, &item.attrs);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.take_if_test(&item.sig.ident, &item.attrs);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
        // A definition's own `fn $name` is a pattern, not a test.
        if item.ident.is_none() {
            visit::visit_item_macro(self, item);
        }
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        let is_table = self.tables.iter().any(|table| mac.path.is_ident(table));
        source::walk_named(&mac.tokens, &mut |name, attributes, after_fn| {
            let documented = !source::docs(attributes).is_empty();
            if is_table && documented {
                self.take(name, attributes);
            } else if after_fn {
                self.take_if_test(name, attributes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, usize, String)> {
        let tests = in_tree(&syn::parse_file(text).unwrap());
        tests
            .into_iter()
            .map(|t| (t.name, t.line, t.docs.trim().to_owned()))
            .collect()
    }

    fn one(name: &str, line: usize, docs: &str) -> Vec<(String, usize, String)> {
        vec![(name.to_owned(), line, docs.to_owned())]
    }

    #[test]
    fn a_plain_test_is_found_in_a_module() {
        let text = "mod a { mod b {\n/// ADM-07\n#[test]\nfn it_holds() {}\nfn no_test() {} } }";
        assert_eq!(found(text), one("it_holds", 4, "ADM-07"));
    }

    #[test]
    fn an_async_test_and_a_table_attribute_are_found() {
        let tokio =
            "/// GL-01, GL-02\n#[tokio::test(flavor = \"current_thread\")]\nasync fn a() {}";
        assert_eq!(found(tokio), one("a", 3, "GL-01, GL-02"));
        let table = "/// GL-03\n#[test_case(1; \"one\")]\n#[test_case(2)]\nfn b(n: u8) {}";
        assert_eq!(found(table), one("b", 4, "GL-03"));
    }

    #[test]
    fn a_property_inside_proptest_is_found() {
        let text = "proptest! {\n#![proptest_config(Config::default())]\n/// ADM-01\n#[test]\n\
                    fn holds(n in 0..9u8) { let x = n; }\n#[test]\nfn other(n in 0..1u8) {} }";
        let mut expected = one("holds", 5, "ADM-01");
        expected.extend(one("other", 7, ""));
        assert_eq!(found(text), expected);
    }

    #[test]
    fn the_rows_of_a_table_macro_are_found() {
        let text = "macro_rules! rows { ($($(#[$m:meta])* $n:ident: $v:expr;)*) => {\n\
                    $($(#[$m])* #[test] fn $n() { check($v) })* } }\n\
                    rows! {\n/// GL-10\nsmall: 1;\n/// GL-11\nlarge: 2; }";
        let mut expected = one("small", 5, "GL-10");
        expected.extend(one("large", 7, "GL-11"));
        assert_eq!(found(text), expected);
    }

    #[test]
    fn a_comment_that_is_not_directly_above_does_not_count() {
        let text = "// ADM-07\n#[test]\nfn a() { /* ADM-08 */ }\n/// ADM-09\nstruct S;";
        assert_eq!(found(text), one("a", 3, ""));
    }

    #[test]
    fn text_that_looks_like_a_test_is_none() {
        assert_eq!(found("const T: &str = \"#[test] fn a() {}\";"), []);
        assert_eq!(found("/// ADM-07\n#[cfg(test)]\nfn helper() {}"), []);
    }
}
