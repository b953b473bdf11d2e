package web

import (
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/web/view"
)

// overview is what an operator looks at first: what is late, failing, stuck, running.
func (s *Web) overview(v *visit) (view.Page, error) {
	status, err := s.api.status.GetStatus(v.ctx, &servov1.GetStatusRequest{})
	if err != nil {
		return view.Page{}, err
	}
	return view.Page{Title: "Overview", Section: "overview", Live: true, Body: view.Overview(view.OverviewModel{Scope: v.scope, Status: status})}, nil
}
