//! Where in the file a key stands.

use toml::de::{DeTable, DeValue};

/// The line of a key like `executor.vm.cpus`, from 1: of the deepest part of it that is there. None
/// where not even its first is.
pub(super) fn line(text: &str, key: &str) -> Option<usize> {
    let whole = DeTable::parse(text).ok()?;
    let mut table = whole.get_ref();
    let mut found = None;
    for part in key.split('.') {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref() == part) else {
            break;
        };
        found = Some(name.span().start);
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    let before = text.get(..found?)?;
    Some(before.matches('\n').count() + 1)
}
