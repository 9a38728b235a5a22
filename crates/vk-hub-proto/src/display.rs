//! Text of somebody else's that an operator will see.

use crate::limit::DISPLAY_CHARS;

/// The text without control characters and without characters that are invisible or turn the
/// direction of what follows, cut to [`DISPLAY_CHARS`] characters.
#[must_use]
pub fn sanitized(text: &str) -> String {
    text.chars()
        .filter(|&c| is_shown(c))
        .take(DISPLAY_CHARS)
        .collect()
}

/// Whether a character shows as itself and leaves its neighbours alone.
fn is_shown(c: char) -> bool {
    let hidden = matches!(
        u32::from(c),
        0x00AD | 0x034F | 0x061C | 0x115F | 0x1160 | 0x17B4 | 0x17B5 // fillers and soft hyphen
        | 0x180B..=0x180F // Mongolian selectors
        | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F // zero width, bidirectional
        | 0x2028 | 0x2029 // line and paragraph separators
        | 0x3164 | 0xFFA0 | 0xFEFF | 0xFFF9..=0xFFFB // fillers, byte order mark, annotations
        | 0xFE00..=0xFE0F | 0xE0100..=0xE01EF // variation selectors
        | 0xE0000..=0xE007F // tags
        | 0x1D173..=0x1D17A // musical controls
    );
    !c.is_control() && !hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DISP-85
    #[test]
    fn display_text_is_cut_and_cannot_steer_a_terminal() {
        assert_eq!(
            sanitized("pull \u{1b}[31mred\u{202e}\u{200b}\u{fe0f}\n"),
            "pull [31mred"
        );
        assert_eq!(sanitized("Grüße, 日本"), "Grüße, 日本");
        let long = "ü".repeat(DISPLAY_CHARS + 1);
        assert_eq!(sanitized(&long).chars().count(), DISPLAY_CHARS);
    }
}
