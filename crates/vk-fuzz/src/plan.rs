//! How many, and which.

/// Inputs of each fuzzer where `VK_LONG` is set.
const LONG: u64 = 1_000_000;

/// What a fuzzer is to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many inputs, one at least.
    pub count: u64,
    /// What they are drawn by.
    pub seed: u64,
}

impl Plan {
    /// As the environment says; `few` is how many there are where it says nothing.
    ///
    /// # Panics
    ///
    /// Where `VK_FUZZ` or `VK_SEED` is no number: another count than the one asked for would be
    /// taken for it.
    pub fn asked(few: u64) -> Plan {
        Plan::of(few, |name| std::env::var(name).ok())
    }

    fn of(few: u64, variable: impl Fn(&str) -> Option<String>) -> Plan {
        let number = |name: &str| {
            let text = variable(name)?;
            let number = text.parse().ok();
            Some(number.unwrap_or_else(|| panic!("{name}={text}: a number is wanted")))
        };
        let usual = if variable("VK_LONG").is_some() {
            LONG
        } else {
            few
        };
        Plan {
            count: number("VK_FUZZ").unwrap_or(usual).max(1),
            seed: number("VK_SEED").unwrap_or(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(set: &[(&str, &str)]) -> (u64, u64) {
        let plan = Plan::of(7, |name| {
            let value = set.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| (*value).to_owned())
        });
        (plan.count, plan.seed)
    }

    #[test]
    fn a_count_asked_for_comes_before_the_long_one() {
        assert_eq!(plan(&[]), (7, 1));
        assert_eq!(plan(&[("VK_LONG", "1")]), (1_000_000, 1));
        let asked = [("VK_LONG", "1"), ("VK_FUZZ", "30"), ("VK_SEED", "9")];
        assert_eq!(plan(&asked), (30, 9));
        assert_eq!(plan(&[("VK_FUZZ", "0")]), (1, 1), "none proves nothing");
    }

    #[test]
    #[should_panic(expected = "VK_FUZZ=1e6")]
    fn what_is_no_number_is_not_passed_over() {
        plan(&[("VK_FUZZ", "1e6")]);
    }
}
