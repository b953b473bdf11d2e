package web

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/view"
)

// eventRoutes is the page of the event log.
func (s *Web) eventRoutes() {
	s.show("/events", s.events)
}

// events is the event log, newest first: of a tenant, or of all tenants and the installation.
func (s *Web) events(v *visit) (view.Page, error) {
	m := view.EventsModel{Scope: v.scope, Type: v.query("type"), Subject: v.query("subject"), Since: v.query("since"), Before: v.query("before")}
	req := &servov1.ListEventsRequest{Tenant: v.scope.Tenant, Type: m.Type, Subject: m.Subject, From: v.since(), PageSize: rowsOfList, PageToken: v.token()}
	if m.Before != "" {
		before, err := time.Parse(view.MinuteForm, m.Before)
		if err != nil {
			return view.Page{}, invalid("before", m.Before, "use the format "+view.MinuteForm)
		}
		req.To = timestamppb.New(before)
	}
	list, err := s.api.events.ListEvents(v.ctx, req)
	if err != nil {
		return view.Page{}, err
	}
	for _, e := range list.GetEvents() {
		m.Events = append(m.Events, view.EventRow{RecordedEvent: e, TypeAt: v.with("type", e.GetType()), SubjectAt: v.with("subject", e.GetSubject())})
	}
	m.Paging = v.paging(list.GetNextPageToken())
	// A filter reads thousands of events, which is too expensive for every refresh.
	live := m.First && m.Type == "" && m.Subject == "" && m.Before == ""
	return view.Page{Title: "Events", Section: "events", Live: live, Body: view.Events(m)}, nil
}
