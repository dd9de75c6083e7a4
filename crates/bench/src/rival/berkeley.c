/*
 * What the benchmark needs of Berkeley DB 5.3, whose interface is a structure of function pointers: one environment with
 * one database, used by one thread. Every function returns 0 or an error that bench_db_error puts into words.
 */
#include <db.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct bench_db {
    DB_ENV *env;
    DB *db;
};

struct bench_db_options {
    uint64_t cache_bytes;
    uint32_t page_bytes;
    uint32_t log_buffer_bytes;
    uint32_t log_file_bytes;
    uint32_t hash;
    uint32_t prepared_log;
};

int bench_db_close(struct bench_db *self);

static int set_up(DB_ENV *env, const struct bench_db_options *options) {
    int error;
    if ((error = env->set_cachesize(env, (uint32_t)(options->cache_bytes >> 30),
                                    (uint32_t)(options->cache_bytes & ((1u << 30) - 1)), 1)) != 0)
        return error;
    if ((error = env->set_lg_bsize(env, options->log_buffer_bytes)) != 0)
        return error;
    if ((error = env->set_lg_max(env, options->log_file_bytes)) != 0)
        return error;
    if (options->prepared_log && (error = env->log_set_config(env, DB_LOG_ZERO, 1)) != 0)
        return error;
    return env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1);
}

int bench_db_open(const char *home, const struct bench_db_options *options, struct bench_db **out) {
    struct bench_db *self = calloc(1, sizeof *self);
    int error;
    if (self == NULL)
        return ENOMEM;
    if ((error = db_env_create(&self->env, 0)) != 0) {
        self->env = NULL;
        goto failed;
    }
    if ((error = set_up(self->env, options)) != 0)
        goto failed;
    /* One process and one thread: regions on the heap, and no lock table to pay for. No recovery, which would fill the
     * log with zeros to its end at every opening: bench_db_close leaves nothing to recover. */
    error = self->env->open(self->env, home,
                            DB_CREATE | DB_INIT_LOG | DB_INIT_MPOOL | DB_INIT_TXN | DB_PRIVATE, 0600);
    if (error != 0)
        goto failed;
    if ((error = db_create(&self->db, self->env, 0)) != 0) {
        self->db = NULL;
        goto failed;
    }
    if ((error = self->db->set_pagesize(self->db, options->page_bytes)) != 0)
        goto failed;
    error = self->db->open(self->db, NULL, "objects.db", NULL, options->hash ? DB_HASH : DB_BTREE,
                           DB_CREATE | DB_AUTO_COMMIT, 0600);
    if (error != 0)
        goto failed;
    *out = self;
    return 0;
failed:
    bench_db_close(self);
    return error;
}

/* Writes a checkpoint first, so that opening again has nothing to replay. */
int bench_db_close(struct bench_db *self) {
    int error = 0, other;
    if (self->db != NULL && self->env != NULL)
        error = self->env->txn_checkpoint(self->env, 0, 0, DB_FORCE);
    if (self->db != NULL && (other = self->db->close(self->db, 0)) != 0 && error == 0)
        error = other;
    if (self->env != NULL && (other = self->env->close(self->env, 0)) != 0 && error == 0)
        error = other;
    free(self);
    return error;
}

int bench_db_begin(struct bench_db *self, DB_TXN **txn) { return self->env->txn_begin(self->env, NULL, txn, 0); }

int bench_db_commit(DB_TXN *txn, int force) { return txn->commit(txn, force ? DB_TXN_SYNC : DB_TXN_NOSYNC); }

int bench_db_abort(DB_TXN *txn) { return txn->abort(txn); }

/* Forces all that was committed. */
int bench_db_force(struct bench_db *self) { return self->env->log_flush(self->env, NULL); }

/* Checkpoints once so much was logged since the last one. */
int bench_db_checkpoint(struct bench_db *self, uint32_t kilobytes) {
    return self->env->txn_checkpoint(self->env, kilobytes, 0, 0);
}

/* Reads at most `len` bytes at `offset` of the value into `into`; DB_NOTFOUND if there is no such key. */
int bench_db_get(struct bench_db *self, DB_TXN *txn, const void *key, uint32_t key_len, uint32_t offset, void *into,
                 uint32_t len, uint32_t *got) {
    DBT k, v;
    int error;
    memset(&k, 0, sizeof k);
    memset(&v, 0, sizeof v);
    k.data = (void *)key;
    k.size = key_len;
    v.data = into;
    v.ulen = len;
    v.doff = offset;
    v.dlen = len;
    v.flags = DB_DBT_USERMEM | DB_DBT_PARTIAL;
    error = self->db->get(self->db, txn, &k, &v, 0);
    *got = v.size;
    return error;
}

/* Replaces the value, or, with `partial`, the `len` bytes at `offset` of it. */
int bench_db_put(struct bench_db *self, DB_TXN *txn, const void *key, uint32_t key_len, const void *data, uint32_t len,
                 uint32_t offset, int partial) {
    DBT k, v;
    memset(&k, 0, sizeof k);
    memset(&v, 0, sizeof v);
    k.data = (void *)key;
    k.size = key_len;
    v.data = (void *)data;
    v.size = len;
    if (partial) {
        v.doff = offset;
        v.dlen = len;
        v.flags = DB_DBT_PARTIAL;
    }
    return self->db->put(self->db, txn, &k, &v, 0);
}

const char *bench_db_error(int error) { return db_strerror(error); }

int bench_db_not_found(int error) { return error == DB_NOTFOUND; }
