package web

import (
	"net/http"

	"github.com/google/uuid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/web/view"
)

// searchRoutes are the page of what was looked for, and what the search box offers meanwhile.
func (s *Web) searchRoutes() {
	s.mux.HandleFunc("GET /ui/search", s.searchPage)
	s.mux.HandleFunc("GET /ui/find", s.suggest)
}

// maxSearch is how long a text the API looks for.
const maxSearch = 200

// look finds what a text names. An id is looked for wherever the visitor may look: whoever has
// one rarely knows whose it is.
func (s *Web) look(v *visit) (text string, answer *servov1.SearchResponse, err error) {
	text = v.query("q")
	if text == "" {
		return "", &servov1.SearchResponse{}, nil
	}
	if len([]rune(text)) > maxSearch {
		return text, nil, fault.New(fault.InvalidArgument, "is too long", fault.Field("q"), fault.Remedy("search for an id, or for a part of a name"))
	}
	req := &servov1.SearchRequest{Q: text, Tenant: v.scope.Tenant, Workspace: v.scope.Workspace}
	if isID(text) && v.everywhere() {
		req.Tenant, req.Workspace = "", ""
	}
	answer, err = s.api.search.Search(v.ctx, req)
	return text, answer, err
}

func isID(text string) bool {
	_, err := uuid.Parse(text)
	return err == nil && len(text) == len(uuid.Nil.String())
}

// searchPage shows what was found. Who has asked for one thing by its id is sent to it.
func (s *Web) searchPage(w http.ResponseWriter, r *http.Request) {
	v, err := s.visit(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	text, answer, err := s.look(v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if isID(text) && len(answer.GetFound()) == 1 {
		http.Redirect(w, r, view.FoundPath(answer.GetFound()[0]), http.StatusSeeOther) //nolint:gosec // a page of ours
		return
	}
	frame := s.frame(v)
	frame.Notice = takeNotice(w, r, s.config.Secure)
	s.write(w, r, http.StatusOK, view.Document(frame, view.Page{Title: "Search", Body: view.Search(v.scope, text, answer)}))
}

// suggest answers the search box while somebody types.
func (s *Web) suggest(w http.ResponseWriter, r *http.Request) {
	v, err := s.visit(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	text, answer, err := s.look(v)
	if err != nil {
		_, doc := docOf(err)
		s.write(w, r, http.StatusOK, view.NoSuggestions(doc.Message))
		return
	}
	s.write(w, r, http.StatusOK, view.Suggestions(text, answer.GetFound()))
}
