//! Images and services (SPEC-38 to SPEC-43, SPEC-77, SPEC-81).

use gitlab_runner_api::response;
use vk_hub_proto::job::{Image, Port, PullPolicy};

use super::job::variables;

/// An image as the node takes it.
pub(crate) fn image(from: &response::Image, warnings: &mut Vec<String>) -> Image {
    let options = &from.executor_opts;
    let user = [&options.docker.user, &options.kubernetes.user];
    Image {
        name: from.name.clone(),
        aliases: aliases(&from.alias),
        entrypoint: from.entrypoint.clone(),
        command: from.command.clone(),
        ports: from
            .ports
            .iter()
            .filter_map(|one| port(one, warnings))
            .collect(),
        variables: variables(&from.variables),
        pull_policy: from
            .pull_policy
            .iter()
            .filter_map(|one| policy(one, warnings))
            .collect(),
        platform: filled(&options.docker.platform),
        user: user.into_iter().find_map(|user| filled(user)),
    }
}

fn filled(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Several names may stand in one text (SPEC-04, SPEC-77).
fn aliases(text: &str) -> Vec<String> {
    text.split([',', ' '])
        .filter(|alias| !alias.is_empty())
        .map(str::to_owned)
        .collect()
}

fn port(from: &response::Port, warnings: &mut Vec<String>) -> Option<Port> {
    let number = u16::try_from(from.number).ok().filter(|number| *number > 0);
    let Some(number) = number else {
        warnings.push(format!("port {} is none and was left out", from.number));
        return None;
    };
    let protocol = filled(&from.protocol).unwrap_or_else(|| "http".to_owned());
    Some(Port {
        number,
        protocol,
        name: filled(&from.name),
    })
}

fn policy(word: &str, warnings: &mut Vec<String>) -> Option<PullPolicy> {
    match word {
        "always" => Some(PullPolicy::Always),
        "if-not-present" => Some(PullPolicy::IfNotPresent),
        "never" => Some(PullPolicy::Never),
        _ => {
            warnings.push(format!("pull policy {word:?} is unknown and was left out"));
            None
        }
    }
}
