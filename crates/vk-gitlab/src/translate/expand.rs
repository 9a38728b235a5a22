//! `$NAME` and `${NAME}` as gitlab-runner expands them: Go's `os.Expand`, one pass.

use std::collections::BTreeMap;

use vk_hub_proto::job::Variable;

/// Looks names up in a job's variables: the last of a name wins; a value that is not raw is itself
/// expanded once against the values as they were sent (wire, 2.3).
#[derive(Debug, Default)]
pub struct Expander {
    values: BTreeMap<String, String>,
}

impl Expander {
    /// Over these variables, in their order. A file variable's reference is the node's to resolve:
    /// its path is not known here, so it expands to nothing (SPEC-48).
    #[must_use]
    pub fn new(variables: &[Variable]) -> Expander {
        let mut sent: BTreeMap<&str, &Variable> = BTreeMap::new();
        for variable in variables {
            sent.insert(&variable.key, variable);
        }
        let original = |name: &str| {
            sent.get(name)
                .filter(|found| !found.file)
                .map(|found| found.value.expose().to_owned())
        };
        let values = sent
            .values()
            .filter(|variable| !variable.file)
            .map(|variable| {
                let value = variable.value.expose();
                let value = if variable.raw {
                    value.to_owned()
                } else {
                    expand(value, original)
                };
                (variable.key.clone(), value)
            });
        Expander {
            values: values.collect(),
        }
    }

    /// The text with its references replaced; unknown names are empty.
    #[must_use]
    pub fn expand(&self, text: &str) -> String {
        expand(text, |name| self.values.get(name).cloned())
    }

    /// A variable's expanded value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }
}

/// Go's `os.Expand` with gitlab-runner's look-up: `$$` is `$`, the shell's special parameters are
/// empty.
fn expand(text: &str, look_up: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        match reference(after) {
            Reference::Name(name, behind) => {
                match name {
                    "$" => out.push('$'),
                    name if is_special(name) => {}
                    name => out.push_str(&look_up(name).unwrap_or_default()),
                }
                rest = behind;
            }
            Reference::Eaten(behind) => rest = behind,
            Reference::None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

enum Reference<'a> {
    /// A name, and what stands behind the reference.
    Name(&'a str, &'a str),
    /// Broken syntax, which Go drops.
    Eaten(&'a str),
    /// No reference: the `$` stands for itself.
    None,
}

fn reference(text: &str) -> Reference<'_> {
    if let Some(inside) = text.strip_prefix('{') {
        return braced(inside);
    }
    let first = text.chars().next();
    if let Some(special) = first.filter(|c| "*#$@!?-".contains(*c) || c.is_ascii_digit()) {
        let (name, behind) = text.split_at(special.len_utf8());
        return Reference::Name(name, behind);
    }
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    match text.split_at(end) {
        ("", _) => Reference::None,
        (name, behind) => Reference::Name(name, behind),
    }
}

fn braced(inside: &str) -> Reference<'_> {
    match inside.split_once('}') {
        // `${}` is dropped whole; without a closing brace `${` alone is.
        Some(("", behind)) => Reference::Eaten(behind),
        Some((name, behind)) => Reference::Name(name, behind),
        None => Reference::Eaten(inside),
    }
}

fn is_special(name: &str) -> bool {
    matches!(name, "*" | "#" | "@" | "!" | "?")
        || (name.len() == 1 && name.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(key: &str, value: &str, raw: bool) -> Variable {
        Variable {
            key: key.into(),
            value: value.into(),
            public: true,
            file: false,
            masked: false,
            raw,
        }
    }

    fn expander() -> Expander {
        Expander::new(&[
            variable("A", "old", true),
            variable("A", "a", false),
            variable("B", "$A-b", false),
            variable("C", "$B", false),
            variable("RAW", "$A", true),
        ])
    }

    /// SPEC-47
    #[test]
    fn references_are_replaced_once_and_the_last_of_a_name_wins() {
        let rows = [
            ("$A", "a"),
            ("${A}x", "ax"),
            ("$B", "a-b"),
            ("$C", "$A-b"),
            ("$RAW", "$A"),
            ("$NONE.", "."),
            ("$$A", "$A"),
            ("$${A}", "${A}"),
            ("$1abc", "abc"),
            ("$*$#$@$!$?$-", ""),
            ("a $ b", "a $ b"),
            ("end$", "end$"),
            ("${A", "A"),
            ("${}x", "x"),
            ("$A_B", ""),
            ("%A%", "%A%"),
        ];
        for (text, expanded) in rows {
            assert_eq!(expander().expand(text), expanded, "{text}");
        }
    }

    /// SPEC-48
    #[test]
    fn what_only_the_node_knows_expands_to_nothing() {
        assert_eq!(
            expander().expand("$CI_PROJECT_DIR/${CI_CONCURRENT_ID}"),
            "/"
        );
    }
}
