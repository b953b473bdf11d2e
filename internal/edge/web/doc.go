// Package web is the web interface: pages for people, rendered here from what the API answers.
//
// It is one more client of the API. Every page calls the services through the channel in the
// process, with the key of whoever is logged in, so that what a person may see and do is
// decided in one place and nothing here can be forgotten. It reads no table and keeps no
// state: a session is a sealed cookie, and a page that is open is refreshed by rendering it
// again.
//
// How a page is made: a function of a visit (who, which tenant, the request) calls the API and
// returns a view.Page, whose body is a templ component in package view. It is registered once
// and served in two ways: as a document under /ui, and as a stream of its body under /ui/live,
// sent whenever it looks different.
package web
