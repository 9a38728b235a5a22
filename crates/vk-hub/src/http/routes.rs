//! Which request a path is.

use hyper::Method;
use vk_hub_proto::{JobId, ReservationId};

/// A request by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Enrol,
    EnrolGitLab,
    NodeSession,
    RelaySession,
    Capacity,
    Reserve,
    Renew(ReservationId),
    Release(ReservationId),
    Submit,
    View(JobId),
    Output(JobId),
    Cancel(JobId),
    Settle(JobId),
    Clients,
}

/// Why a path is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// There is nothing there.
    NotFound,
    /// An ID is spelled in another way than IDs are (API-55).
    BadId,
}

/// Finds the request.
pub(crate) fn route(method: &Method, path: &str) -> Result<Route, NoRoute> {
    let parts: Vec<&str> = path
        .strip_prefix("/v1/")
        .ok_or(NoRoute::NotFound)?
        .split('/')
        .collect();
    let get = method == Method::GET;
    let post = method == Method::POST;
    match parts.as_slice() {
        ["enroll"] if post => Ok(Route::Enrol),
        ["gitlab", "enroll"] if post => Ok(Route::EnrolGitLab),
        ["node"] if get => Ok(Route::NodeSession),
        ["gitlab", "session"] if get => Ok(Route::RelaySession),
        ["capacity"] if post => Ok(Route::Capacity),
        ["reservations"] if post => Ok(Route::Reserve),
        ["reservations", id, "renew"] if post => parsed(id).map(Route::Renew),
        ["reservations", id] if method == Method::DELETE => parsed(id).map(Route::Release),
        ["jobs"] if post => Ok(Route::Submit),
        ["jobs", id] if get => parsed(id).map(Route::View),
        ["jobs", id, "output"] if get => parsed(id).map(Route::Output),
        ["jobs", id, "cancel"] if post => parsed(id).map(Route::Cancel),
        ["jobs", id, "settle"] if post => parsed(id).map(Route::Settle),
        ["clients"] if post => Ok(Route::Clients),
        _ => Err(NoRoute::NotFound),
    }
}

fn parsed<T: std::str::FromStr>(id: &str) -> Result<T, NoRoute> {
    id.parse().map_err(|_| NoRoute::BadId)
}

/// A number of a query; an error where it is there and no number.
pub(crate) fn number<T: std::str::FromStr>(query: &str, name: &str) -> Result<Option<T>, String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    match pairs.find(|(key, _)| *key == name) {
        None => Ok(None),
        Some((_, value)) => value
            .parse()
            .map(Some)
            .map_err(|_| format!("{name} must be a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// API-01, API-02, API-03, API-04, API-05, API-06, API-07, API-08, API-09, API-10, API-55, ERR-04
    #[test]
    fn every_path_of_the_contract_is_a_request_and_no_other() {
        let id = "0123456789abcdef0123456789abcdef";
        let job: JobId = id.parse().unwrap();
        let reservation: ReservationId = id.parse().unwrap();
        let rows = [
            ("POST", "/v1/capacity", Ok(Route::Capacity)),
            ("POST", "/v1/reservations", Ok(Route::Reserve)),
            (
                "POST",
                &format!("/v1/reservations/{id}/renew"),
                Ok(Route::Renew(reservation)),
            ),
            (
                "DELETE",
                &format!("/v1/reservations/{id}"),
                Ok(Route::Release(reservation)),
            ),
            ("POST", "/v1/jobs", Ok(Route::Submit)),
            ("GET", &format!("/v1/jobs/{id}"), Ok(Route::View(job))),
            (
                "GET",
                &format!("/v1/jobs/{id}/output"),
                Ok(Route::Output(job)),
            ),
            (
                "POST",
                &format!("/v1/jobs/{id}/cancel"),
                Ok(Route::Cancel(job)),
            ),
            (
                "POST",
                &format!("/v1/jobs/{id}/settle"),
                Ok(Route::Settle(job)),
            ),
            ("POST", "/v1/clients", Ok(Route::Clients)),
            ("GET", "/v1/jobs/0123", Err(NoRoute::BadId)),
            (
                "GET",
                &format!("/v1/jobs/{}", id.to_uppercase()),
                Err(NoRoute::BadId),
            ),
            ("GET", "/v1/jobs", Err(NoRoute::NotFound)),
            ("GET", "/v2/jobs", Err(NoRoute::NotFound)),
            ("GET", "/", Err(NoRoute::NotFound)),
        ];
        for (method, path, expected) in rows {
            assert_eq!(
                route(&method.parse().unwrap(), path),
                expected,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn numbers_of_a_query_are_numbers() {
        assert_eq!(number("after=4&wait=60", "wait"), Ok(Some(60_u32)));
        assert_eq!(number::<u64>("wait=60", "after"), Ok(None));
        assert!(number::<u64>("after=x", "after").is_err());
        assert!(number::<u32>("wait=-1", "wait").is_err());
    }
}
