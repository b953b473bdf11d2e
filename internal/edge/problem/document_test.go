package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

func TestDocument(t *testing.T) {
	t.Parallel()

	document := func(err error) (int, problem.Doc) { return problem.Document(problem.Status(err)) }
	members := func(t *testing.T, doc problem.Doc) map[string]any {
		t.Helper()
		data, err := json.Marshal(doc)
		require.NoError(t, err)
		var out map[string]any
		require.NoError(t, json.Unmarshal(data, &out))
		return out
	}

	t.Run("a fault keeps all its parts", func(t *testing.T) {
		t.Parallel()
		st, doc := document(fmt.Errorf("trigger: %w", fault.New(fault.LimitExceeded, "has 12 runs, the quota is 10", fault.Remedy("wait for one to end"),
			fault.Value("current", 12), fault.Value("limit", 10), fault.RetryAfter(1500*time.Millisecond))))
		require.Equal(t, http.StatusTooManyRequests, st)
		require.Equal(t, map[string]any{
			"type": "/errors/limit-exceeded", "title": "Over a limit", "status": 429.0, "code": "LIMIT_EXCEEDED",
			"detail": "has 12 runs, the quota is 10 (wait for one to end)", "message": "has 12 runs, the quota is 10", "remedy": "wait for one to end",
			"current": 12.0, "limit": 10.0, "retry_after": 2.0,
		}, members(t, doc))
	})

	t.Run("a value that is too large is no matter of patience", func(t *testing.T) {
		t.Parallel()
		st, _ := document(fault.New(fault.LimitExceeded, "has 9 bytes, the limit is 3", fault.Field("parameters")))
		require.Equal(t, http.StatusBadRequest, st)
		st, _ = document(fault.New(fault.LimitExceeded, "the quota is used up", fault.Field("tenant"), fault.RetryAfter(time.Second)))
		require.Equal(t, http.StatusTooManyRequests, st)
	})

	t.Run("all violations are included, and the detail counts them", func(t *testing.T) {
		t.Parallel()
		_, doc := document(fault.FromViolations([]fault.Violation{
			{Code: fault.InvalidManifest, Field: "assets[a]", Message: "bad", Remedy: "repair it"},
			{Code: fault.CycleDetected, Field: "assets[b]", Message: "cycle"},
		}))
		require.Equal(t, "assets[a]: bad (repair it), and 1 more", doc.Detail)
		require.Len(t, members(t, doc)["violations"], 2)
	})

	t.Run("a value cannot take the place of a member", func(t *testing.T) {
		t.Parallel()
		_, doc := document(fault.New(fault.Conflict, "the run has ended", fault.Value("status", "SUCCEEDED"), fault.Value("field", "x"), fault.Value("state", "SUCCEEDED")))
		m := members(t, doc)
		require.InEpsilon(t, 409.0, m["status"], 0)
		require.NotContains(t, m, "field")
		require.Equal(t, "SUCCEEDED", m["state"])
	})

	t.Run("an error that is no fault is not shown", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{errors.New("secret"), status.Error(codes.Internal, "secret"), status.Error(codes.Unknown, "secret"), status.Error(codes.DataLoss, "secret")} {
			st, doc := document(err)
			require.Equal(t, http.StatusInternalServerError, st)
			require.Equal(t, "INTERNAL", doc.Code)
			require.NotContains(t, doc.Detail, "secret")
			require.NotEmpty(t, doc.Message)
		}
	})

	t.Run("bytes of a caller that are no text do not lose the problem", func(t *testing.T) {
		t.Parallel()
		st, doc := document(fault.New(fault.Conflict, "no \xff", fault.Field("a\xfe")))
		require.Equal(t, http.StatusConflict, st)
		require.Equal(t, "a\uFFFD", doc.Field)
	})

	t.Run("statuses of gRPC itself have their place too", func(t *testing.T) {
		t.Parallel()
		for code, want := range map[codes.Code]int{
			codes.Canceled: 499, codes.DeadlineExceeded: 504, codes.Unimplemented: 501, codes.ResourceExhausted: 413, codes.Unavailable: 503,
			codes.InvalidArgument: 400, codes.OutOfRange: 400, codes.NotFound: 404, codes.AlreadyExists: 409, codes.FailedPrecondition: 409, codes.Aborted: 409,
		} {
			st, doc := document(status.Error(code, "so it is"))
			require.Equal(t, want, st, code)
			require.Equal(t, "so it is", doc.Message)
			require.Equal(t, problem.TypeOf(fault.Code(doc.Code)), doc.Type)
		}
		st, _ := document(context.Canceled)
		require.Equal(t, 499, st)
		st, _ = document(context.DeadlineExceeded)
		require.Equal(t, http.StatusGatewayTimeout, st)
	})
}

func TestWrite(t *testing.T) {
	t.Parallel()

	write := func(method string, err error) *http.Response {
		w := httptest.NewRecorder()
		problem.Write(w, httptest.NewRequest(method, "/v1/x", http.NoBody), err)
		return w.Result()
	}

	t.Run("header and body are consistent", func(t *testing.T) {
		t.Parallel()
		res := write(http.MethodGet, fault.New(fault.Unavailable, "stopping", fault.RetryAfter(10*time.Millisecond)))
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
		require.Equal(t, "1", res.Header.Get("Retry-After"))
		require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
		var doc map[string]any
		require.NoError(t, json.NewDecoder(res.Body).Decode(&doc))
		require.InEpsilon(t, 1.0, doc["retry_after"], 0)
	})

	t.Run("who asks for the head gets no body", func(t *testing.T) {
		t.Parallel()
		res := write(http.MethodHead, fault.New(fault.NotFound, "no such run"))
		require.Equal(t, http.StatusNotFound, res.StatusCode)
		require.Empty(t, res.Header.Get("Retry-After"))
		n, _ := res.Body.Read(make([]byte, 1))
		require.Zero(t, n)
	})
}

// TestDocumentation compares docs/errors.md with the code, in both directions.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/errors.md")
	require.NoError(t, err)
	documented := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|(.*)\\|$").FindAllStringSubmatch(string(page), -1) {
		require.NotContains(t, documented, row[1], "documented twice")
		var cells []string
		for cell := range strings.SplitSeq(row[2], "|") {
			cells = append(cells, strings.Trim(strings.TrimSpace(cell), "`"))
		}
		documented[row[1]] = cells
	}

	var declared []string
	for _, file := range []string{"../../base/fault/fault.go", "problem.go"} {
		declared = append(declared, codesIn(t, file)...)
	}
	require.Greater(t, len(declared), 10)
	for _, code := range declared {
		cells, ok := documented[code]
		require.True(t, ok, "%s is not documented", code)
		require.Len(t, cells, 5, code)
		st, doc := problem.Document(problem.Status(fault.New(fault.Code(code), "m")))
		require.Equal(t, doc.Type, cells[0])
		require.Equal(t, strconv.Itoa(st), strings.Fields(cells[1])[0], code)
		require.Equal(t, grpcName(problem.Status(fault.New(fault.Code(code), "m")).Code()), cells[2], code)
		require.NotEmpty(t, cells[3])
		require.NotEmpty(t, cells[4])
		if code != "INTERNAL" {
			require.NotEqual(t, http.StatusInternalServerError, st, "%s has no status of its own", code)
		}
		delete(documented, code)
	}
	require.Empty(t, documented, "documented, but no code")
}

// codesIn reads the constants of type Code in a file.
func codesIn(t *testing.T, file string) (found []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name := ""
		switch typ := spec.Type.(type) {
		case *ast.Ident:
			name = typ.Name
		case *ast.SelectorExpr:
			name = typ.Sel.Name
		}
		if value, isText := spec.Values[0].(*ast.BasicLit); isText && name == "Code" {
			text, err := strconv.Unquote(value.Value)
			require.NoError(t, err)
			found = append(found, text)
		}
		return true
	})
	return found
}

// grpcName is a code as people write it: FAILED_PRECONDITION.
func grpcName(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED"
	}
	return strings.ToUpper(regexp.MustCompile("([a-z])([A-Z])").ReplaceAllString(code.String(), "${1}_${2}"))
}
