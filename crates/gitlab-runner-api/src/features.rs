//! What a runner says of itself in every request (GL-09 to GL-13, GL-68).

use serde::Serialize;

/// The `info` object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Info {
    name: &'static str,
    version: String,
    revision: String,
    platform: &'static str,
    architecture: &'static str,
    executor: &'static str,
    shell: &'static str,
    features: Features,
    config: Config,
}

impl Info {
    /// What `vk-gitlab` of this version says.
    #[must_use]
    pub fn new(version: &str, revision: &str) -> Info {
        Info {
            name: "vk-gitlab",
            version: version.to_owned(),
            revision: revision.to_owned(),
            platform: "linux",
            architecture: "amd64",
            executor: "vk",
            shell: "bash",
            features: Features::default(),
            config: Config { gpus: "" },
        }
    }

    /// The version, as it stands in the user agent too.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Config {
    gpus: &'static str,
}

macro_rules! features {
    ($($name:ident: $value:literal,)*) => {
        /// The features, all of them always sent.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[allow(missing_docs, reason = "the names are GitLab's")]
        #[allow(clippy::struct_excessive_bools, reason = "so it is on the wire")]
        pub struct Features {
            $(pub $name: bool,)*
        }

        impl Default for Features {
            fn default() -> Features {
                Features { $($name: $value,)* }
            }
        }
    };
}

features! {
    variables: true,
    image: true,
    services: true,
    artifacts: true,
    cache: true,
    fallback_cache_keys: true,
    shared: false,
    upload_multiple_artifacts: true,
    upload_raw_artifacts: true,
    session: false,
    terminal: false,
    refspecs: true,
    masking: true,
    proxy: false,
    raw_variables: true,
    artifacts_exclude: true,
    multi_build_steps: true,
    trace_reset: true,
    trace_checksum: true,
    trace_size: true,
    vault_secrets: false,
    cancelable: true,
    return_exit_code: true,
    service_variables: true,
    service_multiple_aliases: false,
    image_executor_opts: false,
    service_executor_opts: false,
    cancel_gracefully: true,
    native_steps_integration: false,
    two_phase_job_commit: true,
    job_inputs: false,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GL-09, GL-10, GL-11, GL-12, GL-13, GL-68, PORT-08
    #[test]
    fn info_names_the_executor_and_all_31_features() {
        let json = serde_json::to_string(&Info::new("0.1.0", "abcd1234")).unwrap();
        let expected = concat!(
            r#"{"name":"vk-gitlab","version":"0.1.0","revision":"abcd1234","platform":"linux","#,
            r#""architecture":"amd64","executor":"vk","shell":"bash","features":{"#,
            r#""variables":true,"image":true,"services":true,"artifacts":true,"cache":true,"#,
            r#""fallback_cache_keys":true,"shared":false,"upload_multiple_artifacts":true,"#,
            r#""upload_raw_artifacts":true,"session":false,"terminal":false,"refspecs":true,"#,
            r#""masking":true,"proxy":false,"raw_variables":true,"artifacts_exclude":true,"#,
            r#""multi_build_steps":true,"trace_reset":true,"trace_checksum":true,"#,
            r#""trace_size":true,"vault_secrets":false,"cancelable":true,"#,
            r#""return_exit_code":true,"service_variables":true,"#,
            r#""service_multiple_aliases":false,"image_executor_opts":false,"#,
            r#""service_executor_opts":false,"cancel_gracefully":true,"#,
            r#""native_steps_integration":false,"two_phase_job_commit":true,"#,
            r#""job_inputs":false},"config":{"gpus":""}}"#
        );
        assert_eq!(json, expected);
        assert_eq!(
            json.matches(":true").count() + json.matches(":false").count(),
            31
        );
    }
}
