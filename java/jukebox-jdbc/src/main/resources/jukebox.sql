-- The tables of the jukebox. Objects of all kinds have identifiers from one sequence, so a notification needs nothing else.

create sequence if not exists object_id;

create table if not exists account (
    id bigint primary key default nextval('object_id'),
    key text collate "C" not null unique,
    name text not null,
    password_hash text not null,
    created timestamptz not null default now()
);

create table if not exists login_session (
    token_hash text primary key,
    account bigint not null references account on delete cascade,
    expires timestamptz not null
);

create index if not exists login_session_account on login_session (account);

create table if not exists artist (
    id bigint primary key default nextval('object_id'),
    key text collate "C" not null unique,
    name text not null
);

create table if not exists genre (
    id bigint primary key default nextval('object_id'),
    key text collate "C" not null unique,
    name text not null
);

create table if not exists album (
    id bigint primary key default nextval('object_id'),
    key text collate "C" not null unique,
    title text not null,
    artist bigint not null references artist,
    year int not null default 0
);

create index if not exists album_artist on album (artist);

create table if not exists track (
    id bigint primary key default nextval('object_id'),
    title text not null,
    artist bigint not null references artist,
    album bigint not null references album,
    genre bigint references genre,
    disc int not null,
    number int not null,
    seconds int not null,
    media_type text not null,
    size bigint not null,
    sha256 text not null unique,
    audio oid not null,
    owner bigint not null references account,
    added timestamptz not null default now(),
    title_key text collate "C" not null,
    search_text text not null
);

create index if not exists track_artist on track (artist);
create index if not exists track_album on track (album);
create index if not exists track_genre on track (genre);
create index if not exists track_added on track (added);

create table if not exists play_list (
    id bigint primary key default nextval('object_id'),
    name text not null,
    owner bigint not null references account on delete cascade
);

create index if not exists play_list_owner on play_list (owner);

create table if not exists play_list_track (
    play_list bigint not null references play_list on delete cascade,
    position int not null,
    track bigint not null references track,
    primary key (play_list, position) deferrable initially deferred
);

create index if not exists play_list_track_track on play_list_track (track);
