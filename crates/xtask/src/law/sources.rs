//! Rules about Rust sources: nothing unfinished, no test that does not run.

use std::path::{Path, PathBuf};

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};
use syn::Attribute;
use syn::visit::Visit;

use super::{Breach, manifests};
use crate::source;

/// Checks every Rust file.
pub(crate) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<Breach>> {
    let mut breaches = Vec::new();
    for file in files.iter().filter(|file| source::is_rust(file)) {
        let (text, tree) = source::parse(root, file)?;
        let tokens: TokenStream = text.parse().unwrap_or_default();
        breaches.extend(unfinished(file, &tokens));
        breaches.extend(manifests::strays(file, &tokens));
        let mut attributes = Attributes {
            file,
            breaches: Vec::new(),
        };
        attributes.visit_file(&tree);
        breaches.extend(attributes.breaches);
        breaches.extend(doc_examples(file, &tree));
    }
    Ok(breaches)
}

/// `todo!` and `unimplemented!` anywhere, macros included.
fn unfinished(file: &Path, tokens: &TokenStream) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut rest = tokens.clone().into_iter().peekable();
    while let Some(token) = rest.next() {
        match (token, rest.peek()) {
            (TokenTree::Ident(word), Some(TokenTree::Punct(bang)))
                if bang.as_char() == '!' && (word == "todo" || word == "unimplemented") =>
            {
                let what = format!("{word}!: what is not built answers with a clear error");
                breaches.push(Breach::at(file, word.span().start().line, what));
            }
            (TokenTree::Group(group), _) => breaches.extend(unfinished(file, &group.stream())),
            _ => {}
        }
    }
    breaches
}

struct Attributes<'a> {
    file: &'a Path,
    breaches: Vec<Breach>,
}

impl<'ast> Visit<'ast> for Attributes<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        self.look_at(attribute);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let mut found = Vec::new();
        source::walk_named(&mac.tokens, &mut |_, attributes, _| {
            found.extend(attributes.iter().cloned());
        });
        found.iter().for_each(|attribute| self.look_at(attribute));
    }
}

impl Attributes<'_> {
    fn look_at(&mut self, attribute: &Attribute) {
        if attribute.path().is_ident("ignore") {
            let line = attribute.pound_token.span.start().line;
            let what = "#[ignore]: a test that is not run is none";
            self.breaches.push(Breach::at(self.file, line, what));
        }
    }
}

/// Code blocks that rustdoc would run: the staged run has no cargo, so nobody would ever run them.
fn doc_examples(file: &Path, tree: &syn::File) -> Vec<Breach> {
    struct Docs(Vec<(usize, String)>);
    impl<'ast> Visit<'ast> for Docs {
        fn visit_attribute(&mut self, attribute: &'ast Attribute) {
            let line = attribute.pound_token.span.start().line;
            self.0
                .push((line, source::docs(std::slice::from_ref(attribute))));
        }
    }
    let mut docs = Docs(Vec::new());
    docs.visit_file(tree);
    let mut breaches = Vec::new();
    let mut inside = false;
    for (line, text) in docs.0 {
        let Some(kind) = text.trim().strip_prefix("```") else {
            continue;
        };
        if !inside && matches!(kind.trim(), "" | "rust" | "no_run" | "should_panic") {
            let what = "a code block that rustdoc would run: make it a test, or mark it `text`";
            breaches.push(Breach::at(file, line, what));
        }
        inside = !inside;
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(text: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.rs"), text).unwrap();
        let found = check(dir.path(), &[PathBuf::from("a.rs")]).unwrap();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unfinished_code_is_found_even_inside_macros() {
        let found = breaches("fn a() {\n todo!() }\nm! { fn b() { x(unimplemented!(\"no\")) } }");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:2: todo!"), "{found:?}");
        assert!(breaches("// todo!()\nconst A: &str = \"todo!()\";").is_empty());
    }

    #[test]
    fn ignored_tests_are_found_even_inside_macros() {
        assert_eq!(
            breaches("#[test]\n#[ignore = \"slow\"]\nfn a() {}").len(),
            1
        );
        assert_eq!(
            breaches("proptest! { #[test] #[ignore] fn a(x in 0..1) {} }").len(),
            1
        );
    }

    #[test]
    fn examples_that_rustdoc_would_run_are_found() {
        assert_eq!(
            breaches("/// A.\n///\n/// ```\n/// a();\n/// ```\nfn a() {}").len(),
            1
        );
        assert!(breaches("/// ```text\n/// a\n/// ```\nfn a() {}").is_empty());
    }
}
