package web

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/edge/web/view"
)

const (
	maxForm      = 1 << 20 // bytes
	noticeCookie = "servo_notice"
	maxNotice    = 300
)

// done is the result of an action.
type done struct {
	To     string // the next page
	Notice string // its message

	// Shown is the response itself, for a secret that is shown once: no address leads to it and
	// no cookie contains it.
	Shown *view.Page
	Again bool // Shown is the form with its errors
}

// perform runs the action of a form and shows the next page. Forms work without scripts.
func (s *Web) perform(w http.ResponseWriter, r *http.Request, a action) {
	v, err := s.sent(w, r)
	var did done
	if err == nil {
		did, err = a(v)
	}
	if r.Header.Get(fromDialog) != "" {
		s.toDialog(w, r, did, err)
		return
	}
	switch {
	case err != nil:
		s.fail(w, r, err)
	case did.Shown != nil && did.Again:
		s.write(w, r, http.StatusUnprocessableEntity, view.Document(s.layout(v), *did.Shown))
	case did.Shown != nil:
		s.write(w, r, http.StatusOK, view.Document(s.layout(v), *did.Shown))
	default:
		setNotice(w, did.Notice, s.options.Secure)
		http.Redirect(w, r, back(did.To), http.StatusSeeOther)
	}
}

// fromDialog is the header of requests from the script of a dialog, which stays open on errors.
const fromDialog = "X-Servo-Dialog"

// dialogResponse is the response to a dialog: the next page, or the errors by field; "" is the
// form.
type dialogResponse struct {
	To     string            `json:"to,omitempty"`
	Errors map[string]string `json:"errors,omitempty"`
}

// toDialog responds to a dialog, which stays open with its input until the action succeeds. A
// secret is sent as a fragment of a page.
func (s *Web) toDialog(w http.ResponseWriter, r *http.Request, did done, err error) {
	status, answer := http.StatusOK, dialogResponse{}
	switch {
	case errors.Is(err, errLoggedOut) || hasCode(err, fault.Unauthenticated):
		s.sessions.end(w)
		status, answer.To = http.StatusUnauthorized, "/ui/login"
	case err != nil:
		var doc problem.Doc
		if status, doc = docOf(err); status >= http.StatusInternalServerError {
			s.log.WarnContext(r.Context(), "an action failed", "path", r.URL.Path, "error", err)
		}
		answer.Errors = dialogErrors(doc, r.PostForm)
	case did.Shown != nil:
		s.write(w, r, http.StatusOK, did.Shown.Body)
		return
	default:
		setNotice(w, did.Notice, s.options.Secure)
		answer.To = back(did.To)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// dialogErrors are the errors by field of the form. The API reports the path of a field in the
// request; its last part is the name in the form.
func dialogErrors(doc problem.Doc, sent url.Values) map[string]string {
	return errorsByField(doc, func(path string) string {
		field, _, _ := strings.Cut(path[strings.LastIndex(path, ".")+1:], "[")
		if _, is := sent[field]; !is {
			return ""
		}
		return field
	})
}

// errorsByField are the violations of a problem by the field of the form that fieldOf returns for
// their path; "" is the form itself.
func errorsByField(doc problem.Doc, fieldOf func(path string) string) map[string]string {
	violations := doc.Violations
	if len(violations) == 0 {
		violations = []fault.Violation{{Field: doc.Field, Message: doc.Message, Remedy: doc.Remedy}}
	}
	out := map[string]string{}
	for _, broken := range violations {
		field, text := fieldOf(broken.Field), view.Violation(broken.Message, broken.Remedy)
		if field == "" && broken.Field != "" {
			text = broken.Field + ": " + text
		}
		out[field] = strings.TrimSpace(out[field] + " " + text)
	}
	return out
}

// sent is a visit with its form.
func (s *Web) sent(w http.ResponseWriter, r *http.Request) (*visit, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, fault.New(fault.InvalidArgument, "the form cannot be parsed", fault.Remedy("reload the page and submit the form again"), fault.Cause(err))
	}
	return s.visit(r)
}

// preview registers a fragment of a page that follows the input of its form.
func (s *Web) preview(path string, fragment func(v *visit) templ.Component) {
	s.mux.HandleFunc("POST /ui"+path, func(w http.ResponseWriter, r *http.Request) {
		v, err := s.sent(w, r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, r, http.StatusOK, fragment(v))
	})
}

// field is a field of the form.
func (v *visit) field(name string) string { return cleaned(v.PostFormValue(name)) }

// setNotice sets the message of the next page.
func setNotice(w http.ResponseWriter, text string, secure bool) {
	if text == "" {
		return
	}
	value := base64.RawURLEncoding.EncodeToString([]byte(view.Clip(text, maxNotice)))
	http.SetCookie(w, cookie(noticeCookie, value, 60, secure))
}

func takeNotice(w http.ResponseWriter, r *http.Request, secure bool) string {
	held, err := r.Cookie(noticeCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(w, cookie(noticeCookie, "", -1, secure))
	raw, err := base64.RawURLEncoding.DecodeString(held.Value)
	if err != nil {
		return ""
	}
	return view.Clip(strings.ToValidUTF8(string(raw), ""), maxNotice)
}
