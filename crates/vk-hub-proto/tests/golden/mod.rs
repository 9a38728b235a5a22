//! Comparing a value with the file that pins its JSON.

/// Checks that the value's JSON is the file's to the byte, that the file reads back as the value,
/// and that a field of a later version changes nothing.
macro_rules! golden {
    ($name:literal, $value:expr) => {
        $crate::golden::check(
            $name,
            include_str!(concat!("golden/", $name, ".json")),
            &$value,
        )
    };
}
pub(crate) use golden;

pub(crate) fn check<T>(name: &str, pinned: &str, value: &T)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let json = serde_json::to_string(value).unwrap();
    let pinned = pinned.trim_end();
    assert!(
        json == pinned,
        "GOLDEN {name}\n pinned {pinned}\nwritten {json}\n"
    );
    let back: T = serde_json::from_str(pinned).unwrap();
    assert_eq!(&back, value, "{name} does not read back");
    let later = format!(r#"{{"of_a_later_version":[{{}}],{}"#, &pinned[1..]);
    let back: T = serde_json::from_str(&later).unwrap();
    assert_eq!(&back, value, "{name} with an unknown field");
}
