//! URLs of GitLab and of hubs.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use crate::desk::Desk;

/// GL-66
#[test]
fn what_is_no_gitlabs_url_is_refused_where_it_stands() {
    let desk = Desk::new();
    let config = desk.shown("config.toml");
    let rows = [
        (
            "gitlab.example.com",
            "gitlab.example.com",
            "it has no scheme",
        ),
        (
            "gitlab.example.com:8080/ci",
            "gitlab.example.com:8080/ci",
            "it has no scheme",
        ),
        (
            "ftp://gitlab.example.com",
            "ftp://gitlab.example.com",
            "only http and https are spoken",
        ),
        (
            "git@gitlab.example.com:a/b",
            "gitlab.example.com:a/b",
            "it has no scheme",
        ),
        ("https://", "https://", "it names no host"),
        ("https:///path", "https:///path", "it names no host"),
        ("https://:8443", "https://:8443", "it names no host"),
        (
            "https://root:s3cret@gitlab.example.com",
            "gitlab.example.com",
            "it must hold no credentials",
        ),
        (
            "https://s3cret@gitlab.example.com",
            "gitlab.example.com",
            "it must hold no credentials",
        ),
        (
            "https://gitlab.example.com?private_token=s3cret",
            "https://gitlab.example.com",
            "it must have no query and no fragment",
        ),
        (
            "https://gitlab.example.com/#s3cret",
            "https://gitlab.example.com/",
            "it must have no query and no fragment",
        ),
        (
            "https://gitlab.example.com:0",
            "https://gitlab.example.com:0",
            "there is no port 0",
        ),
        (
            "https://gitlab.example.com:65536",
            "https://gitlab.example.com:65536",
            "invalid port number",
        ),
        (
            "https://gitlab.example.com:https",
            "https://gitlab.example.com:https",
            "invalid port number",
        ),
        (
            "https://gitlab. example.com",
            "https://gitlab. example.com",
            "it must hold no blanks",
        ),
        (
            "https://gitlab.example.com\\n",
            "https://gitlab.example.com\\n",
            "it must hold no blanks",
        ),
        (
            "https://gitlab.example.com/api/v4",
            "https://gitlab.example.com/api/v4",
            "leave /api/v4 away: it is put there",
        ),
        (
            "https://gitlab.example.com/a/../b",
            "https://gitlab.example.com/a/../b",
            "its path must not have . or .. in it",
        ),
    ];
    for (url, shown, why) in rows {
        desk.configure(&format!(
            "[gitlab]\nurl = \"{url}\"\n[[runners]]\ntoken_file = \"ci.token\"\n"
        ));
        let told = format!(
            "{config}:2: gitlab.url: \"{shown}\" is no GitLab URL: {why}; it must look like https://gitlab.example.com"
        );
        desk.refuses(&["verify"], &told);
    }
}

/// ENR-17
#[test]
fn what_is_no_hubs_url_is_refused_before_anything_is_made() {
    let desk = Desk::new();
    desk.configure_runner("token_file = \"ci.token\"");
    let rows = [
        (
            "hub.example.com",
            "hub.example.com",
            "the scheme must be https",
        ),
        (
            "http://hub.example.com",
            "http://hub.example.com",
            "http is for loopback addresses alone",
        ),
        ("https://", "https://", "it does not parse"),
        (
            "https://u:s3cret@hub.example.com",
            "…@hub.example.com",
            "it must hold no credentials",
        ),
        (
            "https://hub.example.com/fleet",
            "https://hub.example.com/fleet",
            "nothing may follow host and port",
        ),
        (
            "https://hub.example.com?a=b",
            "https://hub.example.com?a=b",
            "nothing may follow host and port",
        ),
        (
            "https://hub.example.com#a",
            "https://hub.example.com#a",
            "nothing may follow host and port",
        ),
        (
            "https://hub.example.com:0",
            "https://hub.example.com:0",
            "there is no port 0",
        ),
        (
            "https://hub.example.com:99999",
            "https://hub.example.com:99999",
            "its port is no number from 1 to 65535",
        ),
    ];
    for (url, shown, why) in rows {
        let told = format!(
            "\"{shown}\" is no hub's URL: {why}; it must look like https://hub.example.com:8443"
        );
        desk.refuses(&["join", url, "--token", "-"], &told);
        assert!(!desk.path("state").exists(), "{url}");
    }
}

/// ENR-02, ENR-20
#[test]
fn what_is_no_enrolment_token_or_ca_is_refused_before_the_hub_is_asked() {
    let desk = Desk::new();
    desk.configure_runner("token_file = \"ci.token\"");
    let join = ["join", "https://127.0.0.1:1", "--token"];
    let said = desk.run(&[join[0], join[1], join[2], "s3cret"]);
    let told = "vk-gitlab: a token in an argument can be read by everybody on this host: give `--token -`, \
                and the token on standard input";
    assert_eq!((said.code, said.first_line()), (Some(1), told));
    let said = desk.run(&[join[0], join[1], join[2], "-"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.err
            .starts_with("vk-gitlab: this is no enrolment token: "),
        "{said:?}"
    );
    assert!(!desk.path("state/hub").exists());
    fs::remove_dir_all(desk.path("state")).unwrap();
}

/// A host without certificates of authorities, as a small container is, serves a GitLab in plain HTTP;
/// for one in https it is told what to do.
#[test]
fn only_https_needs_the_hosts_certificates() {
    let desk = Desk::new();
    desk.file("none", "", 0o600);
    let (none, nowhere) = (desk.shown("none"), desk.shown("nowhere"));
    let bare = [("SSL_CERT_FILE", &*none), ("SSL_CERT_DIR", &*nowhere)];
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let gitlab = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
        let first = head.next().unwrap().unwrap();
        while !head.next().unwrap().unwrap().is_empty() {}
        let answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
        first
    });
    let url = |scheme: &str| {
        desk.configure(&format!(
            "state_dir = \"state\"\n[gitlab]\nurl = \"{scheme}://127.0.0.1:{port}\"\n[[runners]]\n\
             name = \"ci\"\ntoken_file = \"ci.token\"\n"
        ));
    };
    url("https");
    let said = desk.run_with(&bare, &["verify"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let what = format!(
        "https://127.0.0.1:{port} cannot be spoken to, since this host has no certificates of \
         authorities: install the package ca-certificates, or name a file with GitLab's CA"
    );
    assert!(said.err.contains(&what), "{said:?}");
    url("http");
    let said = desk.run_with(&bare, &["verify"]);
    let asked = gitlab.join().unwrap();
    assert!(asked.starts_with("POST /api/v4/runners/verify "), "{asked}");
    assert!(!said.err.contains("certificates"), "{said:?}");
    assert!(
        said.out.contains("ci") || said.err.contains("ci"),
        "{said:?}"
    );
}
