//! Classes, records, indexes and queries on the command line, with a cluster of real processes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use mortar_tests::cluster::Cluster;
use mortar_tests::{mortar, run_with_input};
use serde_json::{Value, json};

#[test]
fn classes_are_defined_and_their_objects_stored_and_queried() {
    let cluster = Cluster::start(&["--bricks", "2", "--peers", "1", "--memory"]);
    let fields = ["--field", "name:string", "--field", "age:int64=18", "--field", "boss:ref<Person>?"];
    let defined = cluster.run(&[&["class", "define", "Person"][..], &fields].concat());
    assert!(defined.ok().contains("Person  version 1, 3 fields"), "{}", defined.text());
    cluster.run(&["class", "define", "Student", "--extends", "Person", "--field", "since:date?"]).ok();
    cluster.run(&["object", "put", "/ann", "--class", "Person", r#"{"name": "Ann", "age": 50}"#]).ok();
    for (name, age) in [("Bob", 31), ("Cid", 42)] {
        let json = json!({"name": name, "age": age, "boss": "/ann"}).to_string();
        cluster.run(&["object", "put", "--class", "Person", &json]).ok();
    }
    let student = r#"{"name": "Dan", "boss": "/ann", "since": "2026-07-01"}"#;
    cluster.run(&["object", "put", "/dan", "--class", "Student", student]).ok();

    let shown: Value = serde_json::from_str(cluster.run(&["object", "get", "/dan"]).ok()).unwrap();
    assert_eq!((&shown["age"], &shown["since"]), (&json!(18), &json!("2026-07-01")));

    let asked = |args: &[&str]| cluster.run(&[&["query", "--json"], args].concat());
    let names = |rows: Vec<Value>| -> Vec<String> {
        rows.iter().map(|row| row["fields"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let found = asked(&["Person", "age > 30 && boss.name == \"Ann\" order by name"]);
    assert_eq!(names(found.json()), ["Bob", "Cid"], "{}", found.stderr);
    let of_all = asked(&["Person", "boss != null order by age limit 1"]).json();
    assert_eq!((&of_all[0]["class"], names(of_all.clone())), (&json!("Student"), vec!["Dan".to_owned()]));
    assert_eq!(names(asked(&["Person", "age >= :least", "--param", "least=50"]).json()), ["Ann"]);
    let counted = asked(&["Person", "select boss.name as boss, count(*) as many group by boss.name order by count(*)"]);
    assert_eq!(counted.json(), [json!({"boss": null, "many": 1}), json!({"boss": "Ann", "many": 3})]);
    let lines = cluster.run(&["query", "Person", "select name, age where age > 40 order by age"]);
    assert_eq!(lines.ok(), "name\tage\nCid\t42\nAnn\t50");

    let plan = cluster.run(&["query", "Person", "age > 30", "--explain"]);
    assert!(plan.ok().contains("extent scan [brick]: Person and a class that extends it  (4)"), "{}", plan.text());

    let plan = cluster.run(&["query", "Person", "select count(*) where age > 30", "--explain"]);
    assert!(plan.ok().contains("filter [brick]: age > 30  (3)"), "{}", plan.text());
    let plan = cluster.run(&["query", "Person", "select count(*)", "--explain"]);
    assert!(plan.ok().contains("extent scan [brick]: Person and a class that extends it  (4)"), "{}", plan.text());
    let twice = cluster.run(&["query", "Person", "select name, age as name", "--json"]);
    assert!(twice.code == 2 && twice.stderr.contains("two columns have the name name"), "{}", twice.text());

    let wrong = cluster.run(&["query", "Person", "agee > 30"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("has no field agee") && wrong.stderr.contains("^^^^"), "{}", wrong.stderr);
    let wrong = cluster.run(&["object", "put", "--class", "Person", r#"{"nmae": "Eve"}"#]);
    assert!(wrong.code == 2 && wrong.stderr.contains("no field \"nmae\"; it has name, age, boss"), "{}", wrong.stderr);
    assert_eq!(cluster.run(&["query", "Nobody"]).code, 3);
    // A directory is no person.
    cluster.run(&["object", "put", "/staff/eve", "--class", "Person", r#"{"name": "Eve"}"#]).ok();
    let wrong = cluster.run(&["object", "put", "--class", "Person", r#"{"name": "Fay", "boss": "/staff"}"#]);
    assert!(wrong.code == 2 && wrong.stderr.contains("is a ref<Person>, and "), "{}", wrong.stderr);
}

#[test]
fn objects_are_read_through_the_current_version_of_their_class() {
    let cluster = Cluster::start(&["--bricks", "2", "--peers", "1", "--memory"]);
    cluster.run(&["class", "define", "Person", "--field", "name:string", "--field", "age:int64"]).ok();
    cluster.run(&["object", "put", "/ann", "--class", "Person", r#"{"name": "Ann", "age": 50}"#]).ok();
    let evolve = ["class", "evolve", "Person", "--rename", "age=years", "--widen", "years:decimal"];
    cluster.run(&[&evolve[..], &["--add", "city:string=Rome"]].concat()).ok();
    let shown: Value = serde_json::from_str(cluster.run(&["object", "get", "/ann"]).ok()).unwrap();
    assert_eq!(shown, json!({"name": "Ann", "years": "50", "city": "Rome"}));
    let found = cluster.run(&["query", "Person", "city == 'Rome' && years > 49.5", "--json"]);
    assert_eq!(found.json().len(), 1, "{}", found.stderr);
    let history = cluster.run(&["class", "history", "Person", "--json"]).json();
    assert_eq!(history.iter().map(|class| &class["version"]).collect::<Vec<_>>(), [1, 2]);
    let refused = cluster.run(&["class", "evolve", "Person", "--widen", "name:bytes"]);
    assert!(refused.code == 2 && refused.stderr.contains("cannot become bytes"), "{}", refused.stderr);
    let shown = cluster.run(&["class", "show", "Person"]);
    assert!(shown.ok().contains("years: decimal"), "{}", shown.text());
}

#[test]
fn records_are_read_from_the_standard_input_and_hints_name_other_commands() {
    let cluster = Cluster::start(&["--bricks", "1", "--peers", "1", "--memory"]);
    cluster.run(&["class", "define", "Person", "--field", "name:string"]).ok();
    let extended = cluster.run(&["class", "define", "Student", "--extends", "Person", "--field", "year:int64=1"]);
    assert!(extended.ok().contains("Student extends Person"), "{}", extended.text());
    cluster.run(&["index", "create", "by_name", "--class", "Person", "--field", "name", "--unique"]).ok();
    let put = |args: &[&str], input: &str| {
        let mut command = mortar(&[&["object", "put", "--class", "Person"], args].concat());
        run_with_input(command.env("MORTAR_URL", cluster.url()), input.as_bytes().to_vec())
    };
    let stored = put(&["-"], "{\"name\": \"Ann\"}\n{\"name\": \"Bob\"}\n");
    assert_eq!(stored.ok().lines().count(), 2);
    put(&["/cid", "-"], "{\n  \"name\": \"Cid\"\n}\n").ok();
    let taken = put(&["-"], "{\"name\": \"Dan\"} {\"name\": \"Ann\"} {\"name\": \"Eve\"}");
    assert_eq!((taken.code, taken.text().lines().count()), (4, 1), "{}", taken.stderr);
    assert!(taken.stderr.contains("record 2 of the standard input (those before it are stored)"), "{}", taken.stderr);
    let several = put(&["/eve", "-"], "{\"name\": \"Eve\"} {\"name\": \"Fay\"}");
    assert!(several.code == 2 && several.stderr.contains("several records"), "{}", several.stderr);
    let names = cluster.run(&["query", "Person", "select name order by name"]);
    assert_eq!(names.ok().lines().skip(1).collect::<Vec<_>>(), ["Ann", "Bob", "Cid", "Dan"]);
    // Where a name does not exist, a hint names the command that lists names.
    for args in [&["name", "resolve", "/none"][..], &["object", "get", "/none"], &["ls", "/none"]] {
        let none = cluster.run(args);
        assert!(none.code == 3 && none.stderr.contains("mortar ls"), "{args:?}: {}", none.stderr);
    }
    let last = cluster.run(&["remap", "--drain", "1"]);
    assert!(last.code == 2 && last.stderr.contains("start another brick"), "{}", last.stderr);
}

#[test]
fn values_of_a_unique_index_are_unique() {
    let cluster = Cluster::start(&["--bricks", "2", "--peers", "1", "--memory"]);
    cluster.run(&["class", "define", "Person", "--field", "name:string"]).ok();
    let put = |name: &str| {
        let json = json!({ "name": name }).to_string();
        cluster.run(&["object", "put", &format!("/{name}"), "--class", "Person", &json])
    };
    put("ann").ok();
    let create = ["index", "create", "by_name", "--class", "Person", "--field", "name", "--unique"];
    assert!(cluster.run(&create).ok().contains("by name, unique, ready"));
    put("bob").ok();
    let json = r#"{"name": "ann"}"#;
    let taken = cluster.run(&["object", "put", "/other", "--class", "Person", json]);
    assert!(taken.code == 4 && taken.stderr.contains("has the same values already"), "{}", taken.text());
    assert_eq!(cluster.run(&["object", "get", "/other"]).code, 3);
    // Earlier duplicates are reported.
    cluster.run(&["class", "define", "Pet", "--field", "kind:string"]).ok();
    for name in ["/tom", "/kitty"] {
        cluster.run(&["object", "put", name, "--class", "Pet", r#"{"kind": "cat"}"#]).ok();
    }
    let by_kind = ["index", "create", "by_kind", "--class", "Pet", "--field", "kind", "--unique"];
    let flawed = cluster.run(&by_kind);
    assert_eq!(flawed.code, 1, "{}", flawed.stderr);
    for words in ["was created but is not ready", "have the same values", "index build by_kind", "index remove by_kind"]
    {
        assert!(flawed.stderr.contains(words), "{words}: {}", flawed.stderr);
    }
    assert!(cluster.run(&["index", "list"]).ok().contains("building: "));
    let job = cluster.run(&["job", "ls", "--json"]).json().pop().unwrap();
    assert!(job["problems"][0].as_str().unwrap().contains("have the same values"), "{job}");
    let waited = cluster.run(&["index", "build", "by_kind", "--json"]);
    assert_eq!((waited.code, &waited.errors()[0]["error"]["kind"]), (1, &json!("not_unique")));
    let removed = cluster.run(&["index", "remove", "by_kind"]);
    assert!(!removed.ok().contains("same values"), "{}", removed.text());
    // A removed duplicate is not reported any more.
    assert_eq!(cluster.run(&by_kind).code, 1);
    cluster.run(&["object", "rm", "/tom"]).ok();
    assert!(cluster.run(&["index", "build", "by_kind"]).ok().contains("by kind, unique, ready"));
}

#[test]
fn index_is_built_from_existing_objects_and_used() {
    let cluster = Cluster::start(&["--bricks", "2", "--peers", "1", "--memory"]);
    cluster.run(&["class", "define", "Person", "--field", "name:string", "--field", "age:int64"]).ok();
    for age in 0..20 {
        let json = json!({"name": format!("p{age:02}"), "age": age}).to_string();
        cluster.run(&["object", "put", "--class", "Person", &json]).ok();
    }
    let made = cluster.run(&["index", "create", "by_age", "--class", "Person", "--field", "age"]);
    assert_eq!(made.ok(), "by_age  Person by age, ready", "{}", made.stderr);
    let plan = cluster.run(&["query", "Person", "age >= 17", "--explain"]);
    assert!(plan.ok().contains("index range [brick]: by_age: age >= 17; of Person  (3)"), "{}", plan.text());
    let found = cluster.run(&["query", "Person", "select name where age >= 17 order by age desc limit 2"]);
    assert_eq!(found.ok(), "name\np19\np18");
    let listed = cluster.run(&["index", "list", "--json"]).json();
    assert_eq!((&listed[0]["fields"], &listed[0]["state"]), (&json!(["age"]), &json!("ready")));
    let taken = cluster.run(&["index", "create", "by_age", "--class", "Person", "--field", "age"]);
    assert!(taken.code == 4 && taken.stderr.contains("there is an index named"), "{}", taken.stderr);
    cluster.run(&["index", "remove", "by_age"]).ok();
    let plan = cluster.run(&["query", "Person", "age >= 17", "--explain"]);
    assert!(plan.ok().contains("extent scan"), "{}", plan.text());
}
