//! From a request to what the kernel wants: strings without NUL, programs along the PATH.

use std::ffi::CString;

use vk_guest_proto::limits::KERNEL_STRING;
use vk_guest_proto::{EnvVar, Exec, Failure, FailureCode};

use crate::context::{fail, shown};

/// Where programs are looked for when the environment names no PATH.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command's strings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Strings {
    pub(crate) programs: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
}

impl Strings {
    pub(crate) fn of(exec: &Exec) -> Result<Self, Failure> {
        let Some(program) = exec.argv.first().filter(|program| !program.is_empty()) else {
            return fail(FailureCode::Invalid, "a command without a program");
        };
        if exec.cwd.first() != Some(&b'/') {
            let message = format!(
                "the working directory {:?} is not absolute",
                shown(&exec.cwd)
            );
            return fail(FailureCode::Invalid, message);
        }
        let argv = exec.argv.iter().enumerate();
        Ok(Self {
            programs: programs(program, &exec.env)?,
            argv: argv
                .map(|(i, arg)| c_string(arg, || format!("argument {i}")))
                .collect::<Result<_, _>>()?,
            env: exec.env.iter().map(env_string).collect::<Result<_, _>>()?,
            cwd: c_string(&exec.cwd, || "the working directory".into())?,
        })
    }
}

/// A string the kernel takes; `what` names it in errors, its content never stands there.
fn c_string(bytes: &[u8], what: impl Fn() -> String) -> Result<CString, Failure> {
    if bytes.len() >= KERNEL_STRING {
        let message = format!(
            "{} has {} bytes; the kernel takes no argument or variable of {KERNEL_STRING} or more: \
             pass it as a file",
            what(),
            bytes.len()
        );
        return fail(FailureCode::TooLarge, message);
    }
    CString::new(bytes).or_else(|_| fail(FailureCode::Invalid, format!("{} holds a NUL", what())))
}

fn env_string(variable: &EnvVar) -> Result<CString, Failure> {
    let what = || format!("variable {}", shown(&variable.name));
    if variable.name.is_empty() || variable.name.contains(&b'=') {
        return fail(
            FailureCode::Invalid,
            format!("{:?} is no variable's name", shown(&variable.name)),
        );
    }
    c_string(
        &[&variable.name[..], b"=", &variable.value[..]].concat(),
        what,
    )
}

fn programs(program: &[u8], env: &[EnvVar]) -> Result<Vec<CString>, Failure> {
    let what = || "the program's path".to_owned();
    if program.contains(&b'/') {
        return Ok(vec![c_string(program, what)?]);
    }
    // Of two variables of a name, the last counts, as it does for shells.
    let path = env.iter().rev().find(|variable| variable.name == b"PATH");
    let path = path.map_or(DEFAULT_PATH, |variable| &variable.value[..]);
    path.split(|b| *b == b':')
        .map(|dir| {
            let dir = if dir.is_empty() { b"." } else { dir };
            c_string(&[dir, b"/", program].concat(), what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vk_guest_proto::{Opaque, Stdin};

    fn exec(argv: &[&[u8]], env: &[(&[u8], &[u8])]) -> Exec {
        Exec {
            argv: argv.iter().map(|arg| Opaque::from(*arg)).collect(),
            env: env
                .iter()
                .map(|(name, value)| EnvVar {
                    name: name.to_vec(),
                    value: Opaque::from(*value),
                })
                .collect(),
            cwd: b"/".to_vec(),
            directories: Vec::new(),
            user: vec![],
            umask: 0o22,
            stdin: Stdin::Null,
            merge_output: false,
            kill_leftovers: true,
            drain_ms: 0,
        }
    }

    #[test]
    fn a_program_without_a_slash_is_looked_for_along_the_path() {
        let found = Strings::of(&exec(&[b"sh"], &[(b"PATH", b"/a::/b"), (b"X", b"\xff")])).unwrap();
        assert_eq!(
            found.programs,
            [c"/a/sh".into(), c"./sh".into(), CString::from(c"/b/sh")]
        );
        assert_eq!(
            found.env,
            [CString::from(c"PATH=/a::/b"), CString::from(c"X=\xff")]
        );
        let found = Strings::of(&exec(&[b"/bin/sh", b"-c"], &[])).unwrap();
        assert_eq!(found.programs, [CString::from(c"/bin/sh")]);
        assert_eq!(Strings::of(&exec(&[b"sh"], &[])).unwrap().programs.len(), 6);
    }

    /// STAGE-35
    #[test]
    fn a_variable_the_kernel_would_not_take_is_refused_by_name_and_without_its_value() {
        let fits = vec![b'v'; KERNEL_STRING - 5];
        assert!(Strings::of(&exec(&[b"sh"], &[(b"BIG", &fits)])).is_ok());
        let over = vec![b'v'; KERNEL_STRING - 4];
        let failure = Strings::of(&exec(&[b"sh"], &[(b"BIG", &over)])).unwrap_err();
        assert_eq!(failure.code, FailureCode::TooLarge);
        assert!(
            failure.message.contains("BIG") && !failure.message.contains("vv"),
            "{failure}"
        );
    }

    #[test]
    fn what_no_program_can_be_given_is_refused() {
        for (argv, env) in [
            (&[][..], &[][..]),
            (&[&b""[..]][..], &[][..]),
            (&[&b"a\0b"[..]][..], &[][..]),
            (&[&b"sh"[..]][..], &[(&b""[..], &b"x"[..])][..]),
            (&[&b"sh"[..]][..], &[(&b"A=B"[..], &b"x"[..])][..]),
            (&[&b"sh"[..]][..], &[(&b"A"[..], &b"x\0y"[..])][..]),
        ] {
            let failure = Strings::of(&exec(argv, env)).unwrap_err();
            assert_eq!(failure.code, FailureCode::Invalid, "{failure}");
        }
    }
}
