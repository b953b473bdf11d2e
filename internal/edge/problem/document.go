package problem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// ContentType is what an error's body is, by RFC 9457.
const ContentType = "application/problem+json"

// Doc is an RFC 9457 problem document. Its values are written as members of their own.
type Doc struct {
	Type       string // stable per code, such as /errors/not-found
	Title      string // the same for every problem of a type
	Status     int
	Detail     string // what is wrong and what to do
	Code       string
	Message    string
	Field      string
	Remedy     string
	Violations []fault.Violation
	RetryAfter time.Duration
	Values     map[string]any
}

// TypeOf returns the type of a code's problems: a path that docs/errors.md explains.
func TypeOf(code fault.Code) string {
	return "/errors/" + strings.ReplaceAll(strings.ToLower(string(code)), "_", "-")
}

// TitleOf returns the title of a code's problems.
func TitleOf(code fault.Code) string { return kindOf(code).title }

// MarshalJSON encodes the document. A value with the name of a standard member is dropped.
func (d Doc) MarshalJSON() ([]byte, error) {
	members := map[string]any{
		"type": d.Type, "title": d.Title, "status": d.Status, "detail": d.Detail,
		"code": d.Code, "message": d.Message, "field": d.Field, "remedy": d.Remedy,
		"violations": d.Violations, "retry_after": seconds(d.RetryAfter), "instance": nil,
	}
	for name, value := range d.Values {
		if _, taken := members[name]; !taken {
			members[name] = value
		}
	}
	maps.DeleteFunc(members, func(name string, value any) bool {
		switch name {
		case "instance":
			return true
		case "field", "remedy":
			return value == ""
		case "violations":
			return len(d.Violations) == 0
		case "retry_after":
			return d.RetryAfter <= 0
		default:
			return false
		}
	})
	return json.Marshal(members)
}

// seconds rounds up: a caller that retries a moment too early is refused again.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// Document returns the problem document of a status and its HTTP status.
func Document(st *status.Status) (int, Doc) {
	p := detail(st)
	code := fault.Code(p.GetCode())
	k := kindOf(code)
	doc := Doc{
		Type: TypeOf(code), Title: k.title, Status: k.http, Code: p.GetCode(), Message: p.GetMessage(), Field: p.GetField(), Remedy: p.GetRemedy(),
		RetryAfter: p.GetRetryAfter().AsDuration(), Values: p.GetValues().AsMap(),
	}
	// A quota may have room later, but a value that is too large stays too large: a caller must not
	// retry it.
	if code == fault.LimitExceeded && doc.Field != "" && doc.RetryAfter <= 0 {
		doc.Status = http.StatusBadRequest
	}
	for _, v := range p.GetViolations() {
		doc.Violations = append(doc.Violations, fault.Violation{Code: fault.Code(v.GetCode()), Field: v.GetField(), Message: v.GetMessage(), Remedy: v.GetRemedy()})
	}
	f := fault.Fault{Violation: fault.Violation{Field: doc.Field, Message: doc.Message, Remedy: doc.Remedy}}
	if len(doc.Violations) > 1 {
		f.Others = doc.Violations[1:]
	}
	doc.Detail = f.Error()
	return doc.Status, doc
}

// detail is the Problem that a status carries, or the one that it amounts to: gRPC itself,
// the gateway and contexts that have ended know nothing of ours.
func detail(st *status.Status) *servov1.Problem {
	for _, d := range st.Details() {
		if p, ok := d.(*servov1.Problem); ok && p.GetCode() != "" {
			return p
		}
	}
	code, remedy := plain(st.Code())
	if code == fault.Internal {
		return Of(nil)
	}
	return &servov1.Problem{Code: string(code), Message: st.Message(), Remedy: remedy}
}

// plain is the code of a status without details, and what may help.
func plain(code codes.Code) (fault.Code, string) {
	switch code {
	case codes.Canceled:
		return Cancelled, ""
	case codes.DeadlineExceeded:
		return DeadlineExceeded, "allow more time; a repeated change with the same Idempotency-Key is made once"
	case codes.InvalidArgument, codes.OutOfRange:
		return fault.InvalidArgument, ""
	case codes.PermissionDenied:
		return fault.Forbidden, ""
	case codes.Unauthenticated:
		return fault.Unauthenticated, ""
	case codes.NotFound:
		return fault.NotFound, ""
	case codes.AlreadyExists:
		return fault.AlreadyExists, ""
	case codes.FailedPrecondition, codes.Aborted:
		return fault.Conflict, ""
	case codes.ResourceExhausted: // gRPC's word for a message over the limit
		return TooLarge, "send less at a time"
	case codes.Unimplemented:
		return Unimplemented, "compare the versions of client and server"
	case codes.Unavailable:
		return fault.Unavailable, "try again"
	default: // Internal, Unknown, DataLoss, and those that nothing here uses
		return fault.Internal, ""
	}
}

// Write answers a request with an error, in one line. Nothing may have been written before.
func Write(w http.ResponseWriter, r *http.Request, err error) {
	st, doc := Document(Status(err))
	body, marshalErr := json.Marshal(doc)
	if marshalErr != nil { // a value without JSON: not from a Struct, so it cannot be
		st, body = http.StatusInternalServerError, fmt.Appendf(nil, `{"type":%q,"status":500,"code":%q}`, TypeOf(fault.Internal), fault.Internal)
	}
	body = append(body, '\n') // for terminals
	header := w.Header()
	describe(header, body)
	if st == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer")
	}
	if doc.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(seconds(doc.RetryAfter), 10))
	}
	w.WriteHeader(st)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // who has gone reads nothing
	}
}

// describe sets the headers of every problem document.
func describe(header http.Header, body []byte) {
	header.Set("Content-Type", ContentType)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
}

// Answer is the whole HTTP/1.1 answer with an error, for requests that no handler receives. Its
// status is HTTP's own, and the connection ends with it.
func Answer(st int, err error) []byte {
	_, doc := Document(Status(err))
	doc.Status = st
	body, marshalErr := json.Marshal(doc)
	if marshalErr != nil { // as in Write
		body = fmt.Appendf(nil, `{"type":%q,"status":%d,"code":%q}`, TypeOf(fault.Internal), st, fault.Internal)
	}
	body = append(body, '\n')
	header := http.Header{"Connection": {"close"}}
	describe(header, body)
	var answer bytes.Buffer
	fmt.Fprintf(&answer, "HTTP/1.1 %d %s\r\n", st, http.StatusText(st))
	_ = header.Write(&answer) // a buffer takes everything
	answer.WriteString("\r\n")
	answer.Write(body)
	return answer.Bytes()
}
