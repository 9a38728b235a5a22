use proptest::prelude::*;

use super::{Entry, Map, Node, Value, compose, write};
use crate::faults::Faults;
use crate::{ConfigError, Position};

fn read(text: &str) -> Result<Node, ConfigError> {
    let mut faults = Faults::default();
    let node = compose(text, &mut faults);
    let error = faults.or("f", ());
    error.map(|()| node.unwrap())
}

fn fault(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

/// A tree without its places, as compact text.
fn shape(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.clone(),
        Value::Float(number) => format!("f{number}"),
        Value::Text(text) => format!("{text:?}"),
        Value::List(list) => format!("{:?}", list.iter().map(shape).collect::<Vec<_>>()),
        Value::Reference(path) => format!("!{path:?}"),
        Value::Map(map) => {
            let entries = map.iter().map(|e| format!("{}={}", e.key, shape(&e.value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(" "))
        }
    }
}

#[test]
fn a_tree_is_what_ruby_reads() {
    let rows = [
        ("", "null"),
        ("a: |\n  x\n  y", r#"{a="x\ny"}"#),
        ("a: |\n  x\n  y\n", r#"{a="x\ny\n"}"#),
        ("a: >-\n  x\n  y\n", r#"{a="x y"}"#),
        ("a:\n - b\n  - c\n", r#"{a=["\"b - c\""]}"#),
        ("a: 'x\n  y'", r#"{a="x y"}"#),
        ("a: !!str 12", r#"{a="12"}"#),
        ("a: '12'", r#"{a="12"}"#),
        ("a: ! 12", r#"{a="12"}"#),
        ("a: !reference [.b, script]", r#"{a=![".b", "script"]}"#),
        ("a: &x 1\nb: *x", "{a=1 b=1}"),
        ("a: &x 1\nb: &x 2\nc: *x", "{a=1 b=2 c=2}"),
        ("a: &k key\nb: {*k : 1}", r#"{a="key" b={key=1}}"#),
        ("a: {'<<': {x: 1}}", "{a={<<={x=1}}}"),
    ];
    for (text, tree) in rows {
        assert_eq!(shape(&read(text).unwrap()), tree, "{text}");
    }
}

#[test]
fn a_merge_key_overwrites_what_stands_before_it_and_nothing_after_it() {
    let base = "b: &b {s: b, x: 1}\nc: &c {s: c, y: 2}\n";
    let rows = [
        ("a: {s: a, <<: *b}", r#"{s="b" x=1}"#),
        ("a: {<<: *b, s: a}", r#"{s="a" x=1}"#),
        ("a: {<<: [*b, *c]}", r#"{s="b" y=2 x=1}"#),
        ("a: {<<: *b, <<: *c}", r#"{s="c" x=1 y=2}"#),
        ("a: {<<: {z: 3}}", "{z=3}"),
    ];
    for (text, tree) in rows {
        let node = read(&format!("{base}{text}")).unwrap();
        let Value::Map(map) = node.value else {
            panic!("{text}");
        };
        assert_eq!(shape(map.get("a").unwrap()), tree, "{text}");
    }
}

#[test]
fn what_is_no_tree_is_refused_where_it_stands() {
    let rows = [
        ("a: [x, y", "f:1:", "not YAML"),
        ("a: b: c", "f:1:5:", "not YAML"),
        ("a: @x", "f:1:4:", "not YAML"),
        ("a: 1\nb: 2\na: 3", "f:3:1:", "`a` stands twice"),
        ("a: *x", "f:1:4:", "not YAML"),
        ("a: &x [1, *x]", "f:1:11:", "inside what it names"),
        ("a: b\n---\nc: d", "f:2:1:", "second document"),
        ("%YAML 1.1\n---\na: b", "f:1:1:", "not YAML"),
        ("a: !foo x", "f:1:4:", "the tag `!foo`"),
        ("a: !!int '12'", "f:1:4:", "the tag `!!int`"),
        ("a: !reference []", "f:1:15:", "names nothing"),
        ("a: !reference [b, 1]", "f:1:19:", "names only"),
        ("1: a", "f:1:1:", "this key"),
        ("a:\n  yes: b", "f:2:3:", "this key"),
        ("? [a]\n: b", "f:1:3:", "as a key"),
        ("a: {<<: text}", "f:1:9:", "`<<` takes"),
        ("a: {<<: [{x: 1}, 2]}", "f:1:18:", "`<<` takes"),
        ("a:\n  b: 2026-11-30", "f:2:6:", "as a date"),
        ("a: 12:30", "f:1:4:", "base of 60"),
    ];
    for (text, place, what) in rows {
        let said = fault(text);
        assert!(
            said.starts_with(place) && said.contains(what),
            "{text}: {said}"
        );
    }
}

#[test]
fn aliases_of_aliases_are_bounded() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let below = format!("*a{}", level - 1);
        let list = vec![below; 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{list}]\n"));
    }
    assert!(fault(&text).contains("aliases"));
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
    assert!(fault(&deep).contains("f:1:"));
    let deep: String = (0..100)
        .map(|level| format!("{}a:\n", " ".repeat(level)))
        .collect();
    assert!(fault(&deep).contains(": this is not YAML"));
    let aliases = "a: &a [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n\
                   b: &b [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\nc: [[[[*b]]]]\n";
    assert!(fault(aliases).contains("deep"), "{}", fault(aliases));
    let long = format!("a: [{}]", "1, ".repeat(1_001));
    assert!(fault(&long).contains("more than 1000 entries"));
}

#[test]
fn several_odd_scalars_are_said_at_once() {
    let said = fault("a: 12:30\nb: 2026-11-30\n");
    assert_eq!(said.lines().count(), 2, "{said}");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~\\n\\t]{0,40}",
        "\\PC{0,20}",
        any::<String>(),
        "[a-z :#'\"|>&*!%@`\\[\\]{},?-]{0,12}",
        "[0-9._:eExobn+-]{0,8}",
        "(yes|no|null|~|<<|=|---|\\.\\.\\.|true)\\n?",
    ]
}

fn node() -> impl Strategy<Value = Node> {
    let at = Position { line: 1, column: 1 };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|number| Value::Int(number.to_string())),
        (-1000i32..1000).prop_map(|n| Value::Float(format!("{:?}", f64::from(n) / 8.0))),
        text().prop_map(Value::Text),
        prop::collection::vec(text(), 1..3).prop_map(Value::Reference),
    ];
    let leaf = leaf.prop_map(move |value| Node { at, value });
    leaf.prop_recursive(4, 40, 5, move |inner| {
        let list = prop::collection::vec(inner.clone(), 0..5).prop_map(Value::List);
        let map = entries(inner).prop_map(Value::Map);
        prop_oneof![list, map].prop_map(move |value| Node { at, value })
    })
}

fn entries(value: impl Strategy<Value = Node>) -> impl Strategy<Value = Map> {
    let at = Position { line: 1, column: 1 };
    prop::collection::vec((text(), value), 0..5).prop_map(move |pairs| {
        let mut map = Map::default();
        for (key, value) in pairs {
            map.set(Entry { key, at, value });
        }
        map
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_as_the_same(map in entries(node())) {
        let at = Position { line: 1, column: 1 };
        let text = write(&map);
        let again = read(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        if map.len() > 0 {
            prop_assert_eq!(shape(&again), shape(&Node { at, value: Value::Map(map) }), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[a-c:&*<>!\\[\\]{}'\"|\\n #,?-]{0,80}") {
        let _ = read(&text);
    }
}
