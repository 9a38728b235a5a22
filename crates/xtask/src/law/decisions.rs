//! `docs/decisions/`: one short numbered file a decision, numbers without gaps.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Breach;

/// Checks names, numbers and titles.
pub(crate) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<Breach>> {
    let folder = Path::new("docs/decisions");
    let mut breaches = Vec::new();
    let mut expected = 1;
    for file in files.iter().filter(|file| file.starts_with(folder)) {
        let Some(number) = number(file) else {
            let what = "a decision's file is named NNNN-what-was-decided.md";
            breaches.push(Breach::in_file(file, what));
            continue;
        };
        if number != expected {
            let what = format!("this should be number {expected:04}: numbers go up by one");
            breaches.push(Breach::in_file(file, what));
        }
        expected = number + 1;
        let path = root.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let title = format!("# {number:04} ");
        if !text.starts_with(&title) {
            breaches.push(Breach::at(
                file,
                1,
                format!("the title begins with {title:?}"),
            ));
        }
    }
    Ok(breaches)
}

/// The number of a well-named file.
fn number(file: &Path) -> Option<u32> {
    let name = file.file_name()?.to_str()?.strip_suffix(".md")?;
    let (number, slug) = name.split_once('-')?;
    let is_slug = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let well = number.len() == 4 && !slug.is_empty() && slug.chars().all(is_slug);
    number.parse().ok().filter(|_| well)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(names: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("docs/decisions");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in names {
            fs::write(folder.join(name), text).unwrap();
        }
        let mut files: Vec<_> = names
            .iter()
            .map(|(name, _)| Path::new("docs/decisions").join(name))
            .collect();
        files.sort();
        check(dir.path(), &files)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn numbered_files_pass() {
        assert!(breaches(&[("0001-a.md", "# 0001 A\n"), ("0002-b.md", "# 0002 B\n")]).is_empty());
    }

    #[test]
    fn gaps_twins_names_and_titles_are_found() {
        let gap = breaches(&[("0001-a.md", "# 0001 A\n"), ("0003-b.md", "# 0003 B\n")]);
        assert!(gap[0].contains("number 0002"), "{gap:?}");
        let twins = breaches(&[("0001-a.md", "# 0001 A\n"), ("0001-b.md", "# 0001 B\n")]);
        assert!(twins[0].contains("number 0002"), "{twins:?}");
        assert_eq!(breaches(&[("first.md", "# 0001 A\n")]).len(), 1);
        assert_eq!(breaches(&[("0001-a.md", "# A\n")]).len(), 1);
    }
}
