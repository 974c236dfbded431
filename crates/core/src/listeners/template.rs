//! Addresses that users write once for all brokers: `{nodeId}` and `{nodePodName}` stand for the node, and a port can be
//! computed from its id.

use std::net::IpAddr;

use super::ClientListener;
use crate::ids::NodeId;
use crate::problem::Problem;

/// What is said of a number that no port needs.
const TOO_LARGE: &str = "a number in it is too large";
/// How deep parentheses may be nested in a port. Nobody needs more, and each level costs stack.
const DEEPEST: usize = 20;

/// The text with the node in its place.
pub(crate) fn fill(template: &str, node: NodeId, pod: &str) -> String {
    template.replace("{nodeId}", &node.to_string()).replace("{nodePodName}", pod)
}

/// The host that users say a broker is to tell its clients.
pub(crate) fn host(listener: &ClientListener, node: NodeId, pod: &str) -> Option<String> {
    let own = listener.broker(node).and_then(|broker| broker.advertised_host.clone());
    own.or_else(|| Some(fill(listener.configuration.advertised_host_template.as_ref()?, node, pod)))
}

/// The port that users say a broker is to tell its clients. What cannot be one was reported before.
pub(crate) fn port(listener: &ClientListener, node: NodeId) -> Option<u16> {
    let own = listener.broker(node).and_then(|broker| broker.advertised_port);
    match own {
        Some(port) => u16::try_from(port).ok(),
        None => compute(listener.configuration.advertised_port_template.as_ref()?, node).ok(),
    }
}

/// What is wrong with the addresses of one broker.
pub(super) fn problems(field: &str, listener: &ClientListener, node: NodeId, pod: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let problem = |name: &str, found: String, advice: &str| Problem::Listener {
        field: format!("{name} in the {field}"),
        found,
        advice: advice.to_owned(),
    };
    // A broker's own host or port takes the place of the template, and is looked at where it stands.
    let own = listener.broker(node);
    if let Some(template) = &listener.configuration.advertised_host_template
        && own.is_none_or(|broker| broker.advertised_host.is_none())
    {
        let host = fill(template, node, pod);
        if !is_host(&host) {
            let found =
                format!("is '{template}', so node {node} would advertise '{host}', which is no host name");
            let advice = "use a host name or an IP address, in which {nodeId} and {nodePodName} stand for the node, such as broker-{nodeId}.example.com";
            problems.push(problem("advertisedHostTemplate", found, advice));
        }
    }
    if let Some(template) = &listener.configuration.advertised_port_template
        && own.is_none_or(|broker| broker.advertised_port.is_none())
        && let Err(why) = compute(template, node)
    {
        let found = format!("is '{template}', which gives node {node} no port: {why}");
        let advice = "use a number, or a sum such as 9000 + {nodeId}; +, -, * and parentheses can be used";
        problems.push(problem("advertisedPortTemplate", found, advice));
    }
    problems
}

/// Is the text a host name or an IP address?
pub(super) fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        (1..=63).contains(&label.len())
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.parse::<IpAddr>().is_ok() || (text.len() <= 253 && text.split('.').all(is_label))
}

/// The port that a template gives a node.
pub(super) fn compute(template: &str, node: NodeId) -> Result<u16, String> {
    let text = template.replace("{nodeId}", &node.to_string());
    let mut parser = Parser { rest: text.trim(), depth: 0 };
    let value = parser.sum()?;
    if !parser.rest.is_empty() {
        return Err(format!("'{}' at its end is not understood", parser.rest));
    }
    u16::try_from(value)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("the result is {value}, and ports are from 1 to 65535"))
}

/// Whole numbers, `+`, `-`, `*` and parentheses.
struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn takes(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Result<i64, String> {
        let mut value = self.product()?;
        loop {
            let is_plus = self.takes('+');
            if !is_plus && !self.takes('-') {
                return Ok(value);
            }
            let next = self.product()?;
            let result = if is_plus { value.checked_add(next) } else { value.checked_sub(next) };
            value = result.ok_or(TOO_LARGE)?;
        }
    }

    fn product(&mut self) -> Result<i64, String> {
        let mut value = self.number()?;
        while self.takes('*') {
            let next = self.number()?;
            value = value.checked_mul(next).ok_or(TOO_LARGE)?;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<i64, String> {
        if self.takes('(') {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(format!("more than {DEEPEST} parentheses are open at once"));
            }
            let value = self.sum()?;
            self.depth -= 1;
            return if self.takes(')') { Ok(value) } else { Err("a ')' is missing".to_owned()) };
        }
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        if digits.is_empty() && rest.is_empty() {
            return Err("a number is missing at its end".to_owned());
        }
        if digits.is_empty() {
            return Err(format!("there should be a number where it says '{rest}'"));
        }
        let value = digits.parse().map_err(|_| TOO_LARGE.to_owned())?;
        self.rest = rest.trim_start();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_computed_from_the_id() {
        for (template, port) in [
            ("9094", 9094),
            ("900{nodeId}", 9007),
            ("9000 + {nodeId}", 9007),
            ("9000+{nodeId}*2-1", 9013),
            ("(9000 + {nodeId}) - (2 * (1 + 1))", 9003),
        ] {
            assert_eq!(compute(template, NodeId(7)), Ok(port), "{template}");
        }
    }

    #[test]
    fn what_is_no_port_is_refused() {
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        for (template, why) in [
            ("", "a number is missing at its end"),
            ("{nodePodName}", "there should be a number where it says '{nodePodName}'"),
            ("9000 +", "a number is missing at its end"),
            ("9000 / 2", "'/ 2' at its end is not understood"),
            ("(9000", "a ')' is missing"),
            ("9000)", "')' at its end is not understood"),
            ("70000", "the result is 70000, and ports are from 1 to 65535"),
            ("0", "the result is 0, and ports are from 1 to 65535"),
            ("1 - 2", "the result is -1, and ports are from 1 to 65535"),
            ("99999999999999999999", TOO_LARGE),
            ("9223372036854775807 + 1", TOO_LARGE),
            (&deep, "more than 20 parentheses are open at once"),
        ] {
            assert_eq!(compute(template, NodeId(7)), Err(why.to_owned()), "{template}");
        }
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        for host in ["a", "kafka-1.example.com", "10.0.0.1", "fd00::1", "EXAMPLE.com"] {
            assert!(is_host(host), "{host}");
        }
        for host in ["", "a b", "a,b", "http://a", "a:9092", "-a", "a..b", "a.", "$(id)"] {
            assert!(!is_host(host), "{host}");
        }
    }
}
