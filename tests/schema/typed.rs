//! The description is whole: every operation has a name, a summary and a tag that is described, every answer a shape with a
//! name, and every shape says what it holds.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::served::Served;

/// Shapes that hold any keys, because their writers choose them.
const FREE: [&str; 3] = ["ClientMetadata", "MetadataPayload", "ShownArguments"];

/// Shapes that hold whatever their writers choose, beside the forms that they name.
fn says_what_it_holds(name: &str, schema: &Value) -> bool {
    let says = ["properties", "oneOf", "anyOf", "enum", "const", "pattern", "contentSchema", "format"];
    FREE.contains(&name) || says.iter().any(|keyword| schema.get(keyword).is_some())
}

pub(super) fn description(address: SocketAddr) -> Value {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET /openapi.json HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {answer}"))
}

/// Each operation with its method and path.
fn operations(description: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = description["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

/// Whether a body has a shape with a name. Texts and lists of such shapes are fine.
fn is_named(schema: &Value) -> bool {
    match schema["type"].as_str() {
        None => schema.get("$ref").is_some(),
        Some("array") => is_named(&schema["items"]),
        Some(plain) => plain != "object",
    }
}

fn complaints(description: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    let tags = description["tags"].as_array().unwrap();
    let described: BTreeSet<&str> =
        tags.iter().filter_map(|tag| tag["description"].as_str().and(tag["name"].as_str())).collect();
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(description) {
        for key in ["operationId", "summary"] {
            if operation[key].as_str().is_none_or(|text| text.trim().is_empty()) {
                complaints.push(format!("{name} has no {key}"));
            }
        }
        if !ids.insert(operation["operationId"].to_string()) {
            complaints.push(format!("{name} has the operationId of another operation"));
        }
        let tagged: Vec<&str> = operation["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if tagged.is_empty() || !tagged.iter().all(|tag| described.contains(tag)) {
            complaints.push(format!("{name} has no tag that is described: {tagged:?}"));
        }
        complaints.extend(
            bodies(operation)
                .into_iter()
                .filter(|(_, schema)| !is_named(schema))
                .map(|(of, schema)| format!("{name}: {of} is of a shape without a name: {schema}")),
        );
        let has_answer =
            operation["responses"].as_object().unwrap().keys().any(|status| status.starts_with(['2', '3']));
        if !has_answer {
            complaints.push(format!("{name} describes no answer but errors"));
        }
    }
    let schemas = description["components"]["schemas"].as_object().unwrap();
    let silent = schemas.iter().filter(|(name, schema)| !says_what_it_holds(name, schema));
    complaints.extend(silent.map(|(name, _)| format!("{name} does not say what it holds")));
    complaints.extend(schemas.iter().flat_map(|(name, schema)| bare_objects(name, schema)));
    complaints
}

/// The schemas of an operation's bodies.
fn bodies(operation: &Value) -> Vec<(String, &Value)> {
    let request = [("the request".to_owned(), &operation["requestBody"])].into_iter();
    let responses = operation["responses"].as_object().unwrap();
    let responses = responses.iter().map(|(status, response)| (status.clone(), response));
    let of =
        |(of, body): (String, _)| -> Vec<(String, _)> { in_content(body).map(|schema| (of.clone(), schema)).collect() };
    request.chain(responses).flat_map(of).collect()
}

fn in_content(body: &Value) -> impl Iterator<Item = &Value> {
    body["content"].as_object().into_iter().flatten().map(|(_, content)| &content["schema"])
}

/// Objects within a schema that have no name of their own.
fn bare_objects(name: &str, schema: &Value) -> Vec<String> {
    let inner = schema.as_object().into_iter().flatten().filter(|(key, _)| *key != "contentSchema");
    let mut found = Vec::new();
    for (key, value) in inner {
        let parts: Vec<&Value> = match key.as_str() {
            "properties" => value.as_object().unwrap().values().collect(),
            "items" => vec![value],
            "anyOf" | "oneOf" | "allOf" => value.as_array().unwrap().iter().collect(),
            _ => continue,
        };
        for part in parts {
            if part["type"] == "object" {
                found.push(format!("{name} holds an object without a name: {part}"));
            }
            found.extend(bare_objects(name, part));
        }
    }
    found
}

#[test]
fn every_operation_has_a_name_a_summary_a_tag_and_answers_of_a_known_shape() {
    let served = Served::start(&[]);
    let mut description = description(served.address);
    assert_eq!(complaints(&description), [""; 0]);
    assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(description["info"]["license"]["name"], env!("CARGO_PKG_LICENSE"));
    assert_eq!(description["servers"][0]["url"], "/");
    // What is looked for is found where it is.
    let read = &mut description["paths"]["/v1/sessions/{sid}"]["get"];
    read["responses"]["200"]["content"]["application/json"]["schema"] = serde_json::json!({ "type": "object" });
    read["operationId"] = "list_sessions".into();
    read["tags"] = serde_json::json!(["conversations"]);
    read["summary"] = "".into();
    description["components"]["schemas"]["Row"]["properties"]["_run"] = serde_json::json!({ "type": "object" });
    description["components"]["schemas"]["Branch"] = serde_json::json!({ "type": "object" });
    assert_eq!(complaints(&description).len(), 6, "{:#?}", complaints(&description));
}
