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

// done is what an action did.
type done struct {
	To     string // the page to go to
	Notice string // what to say there

	// Shown is the answer itself, for what is shown once and kept nowhere, such as a secret: no
	// address leads to it and no cookie carries it.
	Shown *view.Page
	Again bool // it is the form once more, with what is wrong with what was typed
}

// perform does what a form asks for and shows the page that it leads to. Forms are plain ones:
// they work before any script is loaded.
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
		s.write(w, r, http.StatusUnprocessableEntity, view.Document(s.frame(v), *did.Shown))
	case did.Shown != nil:
		s.write(w, r, http.StatusOK, view.Document(s.frame(v), *did.Shown))
	default:
		setNotice(w, did.Notice, s.config.Secure)
		http.Redirect(w, r, back(did.To), http.StatusSeeOther)
	}
}

// fromDialog is the header of what a dialog sends by its script, so that it can stay open.
const fromDialog = "X-Servo-Dialog"

// dialogAnswer is what a dialog is told: where to go, or what is wrong with what was typed, by the
// names of fields; "" is nobody's.
type dialogAnswer struct {
	To    string            `json:"to,omitempty"`
	Wrong map[string]string `json:"wrong,omitempty"`
}

// toDialog answers a dialog: it stays open, with what was typed, until what it asks for is done.
// What is shown once is sent as a piece of a page.
func (s *Web) toDialog(w http.ResponseWriter, r *http.Request, did done, err error) {
	status, answer := http.StatusOK, dialogAnswer{}
	switch {
	case errors.Is(err, errLoggedOut) || hasCode(err, fault.Unauthenticated):
		s.sessions.end(w)
		status, answer.To = http.StatusUnauthorized, "/ui/login"
	case err != nil:
		var doc problem.Doc
		if status, doc = docOf(err); status >= http.StatusInternalServerError {
			s.log.WarnContext(r.Context(), "something could not be done", "path", r.URL.Path, "error", err)
		}
		answer.Wrong = dialogErrors(doc, r.PostForm)
	case did.Shown != nil:
		s.write(w, r, http.StatusOK, did.Shown.Body)
		return
	default:
		setNotice(w, did.Notice, s.config.Secure)
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

// dialogErrors are what is wrong, by the names of the fields that were sent. The API names a field
// by where it stands in the call; the form has the last part of that.
func dialogErrors(doc problem.Doc, sent url.Values) map[string]string {
	violations := doc.Violations
	if len(violations) == 0 {
		violations = []fault.Violation{{Field: doc.Field, Message: doc.Message, Remedy: doc.Remedy}}
	}
	out := map[string]string{}
	for _, broken := range violations {
		field, _, _ := strings.Cut(broken.Field[strings.LastIndex(broken.Field, ".")+1:], "[")
		text := view.Broken(broken.Message, broken.Remedy)
		if _, is := sent[field]; !is {
			if field = ""; broken.Field != "" {
				text = broken.Field + ": " + text
			}
		}
		if out[field] != "" {
			text = out[field] + " " + text
		}
		out[field] = text
	}
	return out
}

// sent is a visit with what was typed.
func (s *Web) sent(w http.ResponseWriter, r *http.Request) (*visit, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, fault.New(fault.InvalidArgument, "the form cannot be read", fault.Remedy("load the page again and send it once more"), fault.Cause(err))
	}
	return s.visit(r)
}

// asYouType registers a piece of a page that follows what is typed into its form.
func (s *Web) asYouType(path string, piece func(v *visit) templ.Component) {
	s.mux.HandleFunc("POST /ui"+path, func(w http.ResponseWriter, r *http.Request) {
		v, err := s.sent(w, r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, r, http.StatusOK, piece(v))
	})
}

// field is a text of the form.
func (v *visit) field(name string) string { return cleaned(v.PostFormValue(name)) }

// setNotice has the next page say something, once.
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
