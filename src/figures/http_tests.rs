//! The responder against clients that mean well, and against others.

use super::*;
use std::io::ErrorKind;

fn served() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    serve(listener, Arc::new(|| Some("a page\n".to_owned()))).unwrap();
    address
}

fn said(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    said(&mut stream)
}

#[test]
fn only_the_page_is_served_and_only_to_those_who_get_it() {
    let address = served();
    assert_eq!(fetch(address).unwrap(), "a page\n");
    for (request, status, body) in [
        (
            "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
            "200 OK",
            "a page\n",
        ),
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK", "a page\n"),
        ("GET /metrics HTTP/1.1\nHost: x\n\n", "200 OK", "a page\n"),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", ""),
        ("GET / HTTP/1.1\r\n\r\n", "404 ", "404 Not Found\n"),
        (
            "GET /metrics/../x HTTP/1.1\r\n\r\n",
            "404 ",
            "404 Not Found\n",
        ),
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
            "405 ",
            "405 Method Not Allowed\n",
        ),
        ("GET /metrics\r\n\r\n", "400 ", "400 Bad Request\n"),
        ("\u{16}\u{3}\u{1}\r\n\r\n", "400 ", "400 Bad Request\n"),
    ] {
        let answer = ask(address, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{request}: {answer}"
        );
        let (head, got) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(got, body, "{request}");
        assert_eq!(
            head.contains("Allow: GET, HEAD"),
            status == "405 ",
            "{request}"
        );
        let openmetrics = head.contains("application/openmetrics-text; version=1.0.0");
        assert_eq!(openmetrics, status == "200 OK");
    }
}

#[test]
fn a_request_without_end_is_refused() {
    let address = served();
    let mut stream = TcpStream::connect(address).unwrap();
    let line = format!("X: {}\r\n", "x".repeat(1000));
    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n");
    for _ in 0..10 {
        if stream.write_all(line.as_bytes()).is_err() {
            break;
        }
    }
    assert!(said(&mut stream).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_client_that_says_nothing_gives_its_place_to_one_that_asks() {
    let address = served();
    let slow = || {
        let mut stream = TcpStream::connect(address).unwrap();
        // A byte now and then does not win time.
        stream.write_all(b"GET ").unwrap();
        stream
    };
    let mut silent: Vec<TcpStream> = (0..MOST_AT_ONCE).map(|_| slow()).collect();
    let mut served = 0;
    for _ in 0..3 * MOST_THREADS {
        let answer = ask(address, "GET /metrics HTTP/1.1\r\n\r\n");
        served += usize::from(answer.starts_with("HTTP/1.1 200 "));
        // They come again, as attackers do.
        silent.remove(0);
        silent.push(slow());
    }
    // On a busy machine, those that were left may be slow to go.
    assert!(served >= MOST_THREADS, "served {served} times");
}

#[test]
fn those_who_ask_and_do_not_read_are_left_after_a_while() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // More than the buffers of two sockets take.
    let page = "x".repeat(12 << 20);
    serve(listener, Arc::new(move || Some(page.clone()))).unwrap();
    let _deaf: Vec<TcpStream> = (0..MOST_AT_ONCE)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut first = [0; 8];
            stream.read_exact(&mut first).unwrap();
            stream
        })
        .collect();
    let turned_away = ask(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(
        turned_away.is_empty() || turned_away.starts_with("HTTP/1.1 503 "),
        "{turned_away}"
    );
    let begun = Instant::now();
    while !ask(address, "HEAD /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 ") {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "never served again"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_daemon_that_does_not_answer_is_said_to_be_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    serve(listener, Arc::new(|| None)).unwrap();
    let error = fetch(address).unwrap_err().to_string();
    assert_eq!(error, "HTTP/1.1 503 Service Unavailable");
}
