package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"regexp"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

// body is a request's body, read and checked as JSON. The codec turns it into the message,
// and leaves here why it could not.
type body struct {
	*bytes.Reader
	data    []byte
	exact   bool // all its numbers are doubles
	route   *route
	params  map[string]string
	refused error
}

// Close does nothing: the body was read.
func (b *body) Close() error { return nil }

// readBody reads the body of a request, if its call takes one.
func readBody(w http.ResponseWriter, r *http.Request, route *route, params map[string]string) (*body, error) {
	b := &body{Reader: bytes.NewReader(nil), route: route, params: params}
	if r.Body == nil || r.ContentLength == 0 {
		return b, missingBody(route)
	}
	if r.ContentLength > MaxBody {
		return nil, tooLarge()
	}
	limit := int64(MaxBody)
	if !route.hasBody {
		limit = 1 // enough to see that there is one
	}
	raw := http.MaxBytesReader(w, r.Body, limit) // the server bounds the time
	compressed := false
	if route.hasBody {
		var err error
		if compressed, err = isCompressed(w, r.Header); err != nil {
			return nil, err
		}
	}
	data, err := readAll(raw, compressed)
	switch {
	case err != nil && route.hasBody:
		return nil, err
	case !route.hasBody && (err != nil || len(data) > 0):
		return nil, fault.New(fault.InvalidArgument, "this call takes no body", fault.Remedy("use the path and the query parameters"))
	case len(data) == 0:
		return b, missingBody(route)
	}
	if err := checkContentType(r.Header); err != nil {
		return nil, err
	}
	if b.exact, err = canon.CheckNumbers(data); err != nil {
		return nil, err
	}
	b.data = data
	return b, nil
}

// missingBody refuses a request without the body that its call requires. Any web page can make a browser
// send such requests, and those with a form's content type, but not JSON.
func missingBody(route *route) error {
	if !route.needsBody {
		return nil
	}
	return fault.New(fault.InvalidArgument, "the body is missing", fault.Remedy("send JSON with Content-Type: application/json; {} sets no field"))
}

// readAll reads a body and decompresses it.
func readAll(raw io.Reader, compressed bool) ([]byte, error) {
	if compressed {
		return decompress(raw)
	}
	data, err := io.ReadAll(raw)
	if err != nil {
		return nil, unread(err)
	}
	return data, nil
}

func unread(err error) error {
	_, isTooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isTooLarge:
		return tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(problem.RequestTimeout, "the body did not arrive in time", fault.Remedy("send it without pauses"), fault.Cause(err))
	default:
		return fault.New(fault.InvalidArgument, "the body is incomplete", fault.Remedy("send as many bytes as Content-Length declares"), fault.Cause(err))
	}
}

func tooLarge() error {
	return fault.New(problem.TooLarge, fmt.Sprintf("the body has more than %d bytes", MaxBody),
		fault.Remedy("split the request"), fault.Value("limit", MaxBody))
}

func checkContentType(h http.Header) error {
	remedy := fault.Remedy("send JSON with Content-Type: application/json")
	given := h.Get("Content-Type")
	if given == "" {
		return fault.New(fault.InvalidArgument, "is missing", fault.Field("Content-Type"), remedy)
	}
	media, params, err := mime.ParseMediaType(given)
	if err != nil || media != "application/json" {
		return fault.New(problem.UnsupportedMediaType, "the body is "+shorten(given)+", not JSON", fault.Field("Content-Type"), remedy)
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return fault.New(problem.UnsupportedMediaType, "the body is not in UTF-8", fault.Field("Content-Type"), remedy)
	}
	return nil
}

// codec is the gateway's JSON, with names as the contract writes them, and strict.
type codec struct {
	runtime.JSONPb
}

func newCodec() *codec {
	return &codec{runtime.JSONPb{MarshalOptions: toJSON()}}
}

func toJSON() protojson.MarshalOptions {
	return protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}
}

// Marshal writes an answer without the spaces that protojson strews in from build to build,
// and ends the line: answers are read in terminals too.
func (c *codec) Marshal(v any) ([]byte, error) {
	data, err := c.JSONPb.Marshal(v)
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer
	line.Grow(len(data) + 1)
	if err := json.Compact(&line, data); err != nil {
		return nil, err
	}
	line.WriteByte('\n')
	return line.Bytes(), nil
}

// NewDecoder reads a body that was checked.
func (c *codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		b, isBody := r.(*body)
		message, isMessage := v.(proto.Message)
		if !isBody || !isMessage {
			return fmt.Errorf("cannot read a %T from a %T", v, r)
		}
		if b.data == nil {
			return io.EOF // no body
		}
		b.refused = b.decode(message)
		return b.refused
	})
}

// decode decodes the body into the message. Fields of the path must be absent from the body or equal.
func (b *body) decode(message proto.Message) error {
	if err := protojson.Unmarshal(camelMask(message.ProtoReflect().Descriptor(), b.data), message); err != nil {
		return explain(message.ProtoReflect().Descriptor(), b.data, err)
	}
	if !b.exact {
		if err := inexact(message.ProtoReflect().Descriptor(), b.data); err != nil {
			return err
		}
	}
	var violations []fault.Violation
	for _, name := range b.route.inPath {
		field := b.route.input.Fields().ByTextName(name)
		if m := message.ProtoReflect(); m.Has(field) && m.Get(field).String() != b.params[name] {
			violations = append(violations, violation(name, fmt.Sprintf("is %q in the body and %q in the path", shorten(m.Get(field).String()), shorten(b.params[name])), "remove it from the body"))
		}
	}
	return fault.FromViolations(violations)
}

// place matches the position in an error of protojson, whose text differs between builds.
var place = regexp.MustCompile(`^proto:\s*(\(line (\d+):(\d+)\):)?\s*`)

// unexplained returns protojson's own error, if no better explanation was found.
func unexplained(err error) error {
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return fault.New(fault.InvalidArgument, "the body does not match the call: "+shorten(place.ReplaceAllString(text, "")),
		fault.Remedy("compare it with "+openAPIPath), fault.Cause(err))
}
