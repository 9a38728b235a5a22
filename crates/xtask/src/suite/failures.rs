//! What failed, told once more at a run's end: of a long log only the end may be kept.

/// Lines of a program's failures that are repeated: so many of the beginning, and of the end.
const HEAD: usize = 60;
const TAIL: usize = 90;

/// What a test program's log says of its failures, without frames of backtraces. Where it names
/// none, as one that was killed, its last lines.
pub(super) fn of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !is_frame(line)).collect();
    let begin = lines.iter().position(|line| *line == "failures:");
    let lines = lines.get(begin.unwrap_or(0)..).unwrap_or_default();
    let head = if begin.is_some() { HEAD } else { 0 };
    let left_out = lines.len().saturating_sub(head + TAIL);
    if left_out == 0 {
        return lines.join("\n");
    }
    let note = format!("[{left_out} lines left out]");
    let (first, rest) = lines.split_at(head);
    let (_, last) = rest.split_at(left_out);
    [first, &[note.as_str()], last].concat().join("\n")
}

/// `  12: name` and `      at /path:12:3`.
fn is_frame(line: &str) -> bool {
    let text = line.trim_start();
    if text.len() == line.len() {
        return false;
    }
    let number = text.split_once(": ").map(|(number, _)| number);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.starts_with("at /") || number.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_without_what_went_well_and_without_frames() {
        let log = "running 2 tests\nsuccesses:\n\nfailures:\n\n---- a stdout ----\nwhy\n   0: f\n      \
                   \t     at /x.rs:1:2\n\nfailures:\n    a\n";
        let told = of(log);
        assert_eq!(
            told,
            "failures:\n\n---- a stdout ----\nwhy\n\nfailures:\n    a"
        );
    }

    #[test]
    fn of_long_failures_the_beginning_and_the_end_are_told() {
        let many: Vec<String> = (0..1000).map(|number| format!("line {number}")).collect();
        let told = of(&format!("failures:\n{}", many.join("\n")));
        assert!(told.starts_with("failures:\nline 0\n") && told.ends_with("\nline 999"));
        assert!(told.contains("\n[851 lines left out]\n"), "{told}");
        assert_eq!(told.lines().count(), HEAD + 1 + TAIL);
    }

    #[test]
    fn of_a_program_that_was_killed_the_last_lines_are_told() {
        let many: Vec<String> = (0..1000).map(|number| format!("line {number}")).collect();
        let told = of(&many.join("\n"));
        assert!(
            told.starts_with("[910 lines left out]\nline 910\n"),
            "{told}"
        );
        assert_eq!(of("one\ntwo"), "one\ntwo");
    }
}
