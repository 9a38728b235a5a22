//! Durations in GitLab's words: `1h 30m`, `90 minutes`, `1 day and 2 hours`, `1:30:00`, `3600`.

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;
const DAY: f64 = 86_400.0;

/// A duration in whole seconds; nothing where the text is none or comes to 0.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let text = text.trim().to_lowercase();
    let sum = match text.contains(':') {
        true => clock(&text)?,
        false => words(&text)?,
    };
    // Above 2^53 a duration has no meaning, and the conversion below none either.
    if !(1.0..9.0e15).contains(&sum) {
        return None;
    }
    format!("{:.0}", sum.floor()).parse().ok()
}

/// `hours:minutes:seconds`, with days before where there is one more.
fn clock(text: &str) -> Option<f64> {
    let mut factors = [1.0, MINUTE, HOUR, DAY].into_iter();
    let mut sum = 0.0;
    for part in text.rsplit(':') {
        sum += number(part.trim())? * factors.next()?;
    }
    Some(sum)
}

/// Numbers, each with its unit after it; seconds where there is none.
fn words(text: &str) -> Option<f64> {
    let mut sum = 0.0;
    let mut waiting: Option<f64> = None;
    let mut any = false;
    for word in split(text) {
        if let Some(number) = number(&word) {
            sum += waiting.replace(number).unwrap_or_default();
            any = true;
        } else if let Some(unit) = unit(&word) {
            let one = (!any).then_some(1.0);
            sum += waiting.take().or(one)? * unit;
            any = true;
        } else if !matches!(word.as_str(), "and" | "with" | "plus") {
            return None;
        }
    }
    any.then(|| sum + waiting.unwrap_or_default())
}

/// Words and numbers, also where nothing stands between them.
fn split(text: &str) -> Vec<String> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut words: Vec<String> = Vec::new();
    let mut last = None;
    for c in text.chars() {
        if c.is_whitespace() || c == ',' {
            last = None;
            continue;
        }
        match words.last_mut() {
            Some(word) if last == Some(is_number(c)) => word.push(c),
            _ => words.push(c.into()),
        }
        last = Some(is_number(c));
    }
    words
}

fn number(word: &str) -> Option<f64> {
    let fits = |c: char| c.is_ascii_digit() || c == '.';
    let ends = word.ends_with(|c: char| c.is_ascii_digit());
    (ends && word.chars().all(fits)).then(|| word.parse().ok())?
}

fn unit(word: &str) -> Option<f64> {
    match word {
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1.0),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(MINUTE),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some(HOUR),
        "d" | "dy" | "day" | "days" => Some(DAY),
        "w" | "week" | "weeks" => Some(7.0 * DAY),
        "mo" | "mos" | "month" | "months" => Some(30.0 * DAY),
        "y" | "yr" | "yrs" | "year" | "years" => Some(365.25 * DAY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_gitlabs_words() {
        let rows = [
            ("1h 30m", Some(5_400)),
            ("1h30m", Some(5_400)),
            ("90 minutes", Some(5_400)),
            ("3600 seconds", Some(3_600)),
            ("3600", Some(3_600)),
            ("1 hour", Some(3_600)),
            ("1 hr 20 min", Some(4_800)),
            ("2 hours, 5 mins", Some(7_500)),
            ("1 day and 2 hours", Some(93_600)),
            ("1.5 h", Some(5_400)),
            (".5h", Some(1_800)),
            ("6 mos 1 day", Some(181 * 86_400)),
            ("3 weeks and 2 days", Some(23 * 86_400)),
            ("1 year", Some(31_557_600)),
            ("1:30:00", Some(5_400)),
            ("3:41:59", Some(13_319)),
            ("05:30", Some(330)),
            ("day", Some(86_400)),
            ("minute 30s", Some(90)),
            ("1H", Some(3_600)),
            ("0", None),
            ("0 hours", None),
            ("", None),
            ("soon", None),
            ("1 fortnight", None),
            ("one hour", None),
            ("1 hour hour", None),
            ("1h x", None),
            ("-1h", None),
            ("1..2h", None),
            ("1:2:3:4:5", None),
            ("99999999999999999999 years", None),
        ];
        for (text, expected) in rows {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
