//! Readers as lenient as Go's.

use serde::{Deserialize, Deserializer};

/// `null` is the zero value.
pub(crate) fn zero<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// A user: text, or a whole number as its digits; `null` is empty.
pub(crate) fn user<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match serde_json::Value::deserialize(from)? {
        serde_json::Value::Null => Ok(String::new()),
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) if number.is_i64() => Ok(number.to_string()),
        other => Err(serde::de::Error::custom(format!(
            "{other} is neither text nor a whole number"
        ))),
    }
}
