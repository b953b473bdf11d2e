package web

import (
	"net/http"

	"github.com/google/uuid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/web/view"
)

// searchRoutes are the search page and the suggestions of the search box.
func (s *Web) searchRoutes() {
	s.mux.HandleFunc("GET /ui/search", s.searchPage)
	s.mux.HandleFunc("GET /ui/find", s.suggest)
}

// maxSearch is the maximum length of a search text.
const maxSearch = 200

// find searches for the text of a request. Ids are searched in all tenants of the visitor, who
// rarely knows the tenant of an id.
func (s *Web) find(v *visit) (text string, answer *servov1.SearchResponse, err error) {
	text = v.query("q")
	if text == "" {
		return "", &servov1.SearchResponse{}, nil
	}
	if len([]rune(text)) > maxSearch {
		return text, nil, fault.New(fault.InvalidArgument, "is too long", fault.Field("q"), fault.Remedy("search for an id or a part of a name"))
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

// searchPage lists the matches. An id with one match redirects to it.
func (s *Web) searchPage(w http.ResponseWriter, r *http.Request) {
	v, err := s.visit(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	text, answer, err := s.find(v)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if isID(text) && len(answer.GetFound()) == 1 {
		http.Redirect(w, r, view.FoundPath(answer.GetFound()[0]), http.StatusSeeOther) //nolint:gosec // a page of this server
		return
	}
	layout := s.layout(v)
	layout.Notice = takeNotice(w, r, s.options.Secure)
	s.write(w, r, http.StatusOK, view.Document(layout, view.Page{Title: "Search", Body: view.Search(v.scope, text, answer)}))
}

// suggest responds to the input of the search box.
func (s *Web) suggest(w http.ResponseWriter, r *http.Request) {
	v, err := s.visit(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	text, answer, err := s.find(v)
	if err != nil {
		_, doc := docOf(err)
		s.write(w, r, http.StatusOK, view.NoSuggestions(doc.Message))
		return
	}
	s.write(w, r, http.StatusOK, view.Suggestions(text, answer.GetFound()))
}
