/// An enum whose variants have names: how kill points, counters and logs speak of records and
/// effects. Derived: `#[derive(strum::IntoStaticStr, strum::VariantNames)]` is all it takes.
pub trait Variant {
    /// The names of all variants, in the order of their declaration.
    const ALL: &'static [&'static str];

    /// This value's variant.
    fn variant(&self) -> &'static str;
}

impl<T> Variant for T
where
    T: strum::VariantNames,
    for<'a> &'a T: Into<&'static str>,
{
    const ALL: &'static [&'static str] = T::VARIANTS;

    fn variant(&self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(strum::IntoStaticStr, strum::VariantNames)]
    enum Sample {
        First,
        Second { _n: u8 },
    }

    #[test]
    fn a_derived_enum_names_its_variants() {
        assert_eq!(Sample::ALL, ["First", "Second"]);
        assert_eq!(Sample::First.variant(), "First");
        assert_eq!(Sample::Second { _n: 1 }.variant(), "Second");
    }
}
