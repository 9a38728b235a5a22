//! What the agent found, in gitlab-runner's words.

use vk_guest_proto::{Note, NoteCode};

use crate::script::warning;

/// A line about a note.
pub(in crate::stages) fn text(note: &Note, project_dir: &str) -> String {
    let subject = String::from_utf8_lossy(&note.subject);
    let warn = |text: String| warning(&format!("WARNING: {text}"));
    match note.code {
        NoteCode::Matched => format!(
            "{subject}: found {} matching artifact files and directories\n",
            note.count
        ),
        NoteCode::NoMatch => warn(format!(
            "{subject}: no matching files. Ensure that the artifact path is relative to the \
             working directory ({project_dir})"
        )),
        NoteCode::EmptyPattern => warn("No matching files. Path is empty.".to_owned()),
        NoteCode::PathOutside => warn(format!(
            "processPath: artifact path is not a subpath of project directory: {subject}"
        )),
        NoteCode::ExcludeOutside => warn(format!(
            "isExcluded: artifact path is not a subpath of project directory: {subject}"
        )),
        NoteCode::Excluded => format!("{subject}: excluded {} files\n", note.count),
        NoteCode::Untracked if note.count == 0 => warn("untracked: no files".to_owned()),
        NoteCode::Untracked => format!("untracked: found {} files\n", note.count),
        NoteCode::UntrackedUnknown => warn(format!("untracked: {}", note.text)),
        NoteCode::FileIgnored => warn(format!("File ignored: {subject}: {}", note.text)),
        NoteCode::InsideGit => {
            warn("Part of .git directory is on the list of files to archive".to_owned())
                + &warn("This may introduce unexpected problems".to_owned())
        }
        NoteCode::EntrySkipped => warn(format!("{subject}: {}", note.text)),
        NoteCode::FileChanged => warn(format!("{subject} changed while it was read")),
        NoteCode::More => warn(format!("{} more like this", note.count)),
        NoteCode::Other => warn(format!("{subject} {}", note.text)),
    }
}
