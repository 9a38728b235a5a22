//! What the agent found, in gitlab-runner's words.

use vk_guest_proto::{Note, NoteCode};

use crate::output::Output;
use crate::transfer_log::Level;

/// Says what a note tells.
pub(in crate::stages) fn say(output: &Output, note: &Note, project_dir: &str) {
    let (level, text) = entry(note, project_dir);
    output.log(level, &text, &[]);
    if note.code == NoteCode::InsideGit {
        let more = "This may introduce unexpected problems";
        output.log(Level::Warning, more, &[]);
    }
}

fn entry(note: &Note, project_dir: &str) -> (Level, String) {
    let subject = String::from_utf8_lossy(&note.subject);
    let warn = |text: String| (Level::Warning, text);
    let inform = |text: String| (Level::Info, text);
    match note.code {
        NoteCode::Matched => inform(format!(
            "{subject}: found {} matching artifact files and directories",
            note.count
        )),
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
        NoteCode::Excluded => inform(format!("{subject}: excluded {} files", note.count)),
        NoteCode::Untracked if note.count == 0 => warn("untracked: no files".to_owned()),
        NoteCode::Untracked => inform(format!("untracked: found {} files", note.count)),
        NoteCode::UntrackedUnknown => warn(format!("untracked: {}", note.text)),
        NoteCode::FileIgnored => warn(format!("File ignored: {subject}: {}", note.text)),
        NoteCode::InsideGit => {
            warn("Part of .git directory is on the list of files to archive".to_owned())
        }
        NoteCode::EntrySkipped => warn(format!("{subject}: {}", note.text)),
        NoteCode::FileChanged => warn(format!("{subject} changed while it was read")),
        NoteCode::More => warn(format!("{} more like this", note.count)),
        NoteCode::Other => warn(format!("{subject} {}", note.text)),
    }
}
