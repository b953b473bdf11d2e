// Package web is the web interface: pages that are rendered from responses of the API.
//
// It is a client of the API. Every page calls the services through the channel in the process,
// with the credential of the visitor, so that the API alone decides what a visitor may see and do.
// It reads no tables and stores no state: a session is an encrypted cookie, and a live page is
// refreshed by rendering it again.
//
// A page is a function of a visit (caller, tenant, request). It calls the API and returns a
// view.Page, whose body is a templ component of package view. It is registered once and served
// twice: as a document under /ui, and under /ui/live as a stream of its body, which is sent
// whenever it changes.
package web
